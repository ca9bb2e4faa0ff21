// PyTorch's CPU allocator with counters, and on request with a history: CUDA's allocator has both, the CPU's neither.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint8_t kPriority = 100; // Above PyTorch's own; also what is needed to take the allocator off again.
constexpr size_t kShards = 64; // Locks: threads that allocate at once seldom meet.
constexpr size_t kPowers = 48; // Powers of two: of nanoseconds up to days, of bytes up to 128 TiB.

struct Counters {
  int64_t allocated;
  int64_t peak;
  int64_t allocations;
  int64_t frees;
  int64_t total;
  int64_t spent;
  int64_t times[kPowers];
  int64_t sizes[kPowers];
};

struct Event {
  int64_t nanoseconds;
  int64_t address;
  int64_t bytes; // Negative: it is given back.
  int64_t thread;
};

// The clock of Python's time.monotonic_ns.
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Of how many digits in binary a number is: the i-th power of two is the first that is larger.
size_t power_above(int64_t number) {
  size_t power = 0;
  while (power + 1 < kPowers && (int64_t{1} << power) <= number) {
    power++;
  }
  return power;
}

int64_t this_thread() {
  static std::atomic<int64_t> next{0};
  thread_local const int64_t mine = next++;
  return mine;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t began = now();
    void* place = pytorch()->raw_allocate(bytes);
    const int64_t ended = now();
    if (place != nullptr && bytes > 0) {
      {
        Shard& shard = shard_of(place);
        std::lock_guard<std::mutex> guard(shard.mutex);
        shard.sizes[place] = bytes;
      }
      took(static_cast<int64_t>(bytes), ended - began);
      note(ended, place, static_cast<int64_t>(bytes));
    }
    return {place, place, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void gone(void* place) {
    int64_t bytes = 0;
    {
      Shard& shard = shard_of(place);
      std::lock_guard<std::mutex> guard(shard.mutex);
      auto found = shard.sizes.find(place);
      if (found != shard.sizes.end()) {
        bytes = static_cast<int64_t>(found->second);
        shard.sizes.erase(found);
      }
    }
    if (bytes > 0) {
      allocated_ -= bytes;
      sizes_[power_above(bytes)] -= bytes;
      frees_++;
      // Before the memory is given back, or another thread's allocation of the same place could come first.
      note(now(), place, -bytes);
    }
    pytorch()->raw_deallocate(place);
  }

  void read(Counters* into) const {
    *into = {allocated_, peak_, allocations_, frees_, total_, spent_, {}, {}};
    for (size_t index = 0; index < kPowers; index++) {
      into->times[index] = times_[index];
      into->sizes[index] = sizes_[index];
    }
  }

  void reset_peak() {
    peak_ = allocated_.load();
  }

  // The counters without the times; their peak is that since the last call, and begins anew.
  void take(int64_t* into) {
    const int64_t alive = allocated_;
    // What another thread takes just now may miss the old peak; it counts to the next one, which is never below it.
    into[0] = alive;
    into[1] = std::max(peak_.exchange(alive), alive);
    into[2] = allocations_;
    into[3] = total_;
  }

  void record(uint64_t capacity) {
    std::lock_guard<std::mutex> guard(history_);
    events_.clear();
    events_.reserve(std::min<uint64_t>(capacity, 1 << 20));
    capacity_ = capacity;
    dropped_ = 0;
    recording_ = capacity > 0;
  }

  // How many events there are; the first `most` of them are copied.
  uint64_t events(Event* into, uint64_t most, uint64_t* dropped) {
    std::lock_guard<std::mutex> guard(history_);
    *dropped = dropped_;
    std::copy_n(events_.begin(), std::min<uint64_t>(most, events_.size()), into);
    return events_.size();
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<void*, size_t> sizes;
  };

  static void release(void* place);

  static c10::Allocator* pytorch() {
    return c10::GetDefaultCPUAllocator();
  }

  Shard& shard_of(void* place) {
    return shards_[(reinterpret_cast<uintptr_t>(place) >> 6) % kShards]; // PyTorch aligns to 64 bytes.
  }

  void took(int64_t bytes, int64_t nanoseconds) {
    const int64_t alive = allocated_ += bytes;
    int64_t most = peak_;
    while (alive > most && !peak_.compare_exchange_weak(most, alive)) {
    }
    allocations_++;
    total_ += bytes;
    spent_ += nanoseconds;
    times_[power_above(nanoseconds)]++;
    sizes_[power_above(bytes)] += bytes;
  }

  void note(int64_t time, void* place, int64_t bytes) {
    if (!recording_) {
      return;
    }
    std::lock_guard<std::mutex> guard(history_);
    if (events_.size() < capacity_) {
      events_.push_back({time, static_cast<int64_t>(reinterpret_cast<uintptr_t>(place)), bytes, this_thread()});
    } else {
      dropped_++;
    }
  }

  std::array<Shard, kShards> shards_;
  std::atomic<int64_t> allocated_{0}, peak_{0}, allocations_{0}, frees_{0}, total_{0}, spent_{0};
  std::array<std::atomic<int64_t>, kPowers> times_{}, sizes_{};
  std::atomic<bool> recording_{false};
  std::mutex history_;
  std::vector<Event> events_;
  uint64_t capacity_ = 0;
  uint64_t dropped_ = 0;
};

// Never destroyed: tensors may give memory back while the process ends.
CountingAllocator& allocator() {
  static auto* only = new CountingAllocator();
  return *only;
}

void CountingAllocator::release(void* place) {
  if (place != nullptr) {
    allocator().gone(place);
  }
}

} // namespace

extern "C" {
void memplan_count() {
  c10::SetCPUAllocator(&allocator(), kPriority);
}
void memplan_uncount() {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);
}
void memplan_counters(Counters* into) {
  allocator().read(into);
}
void memplan_reset_peak() {
  allocator().reset_peak();
}
void memplan_record_events(uint64_t capacity) {
  allocator().record(capacity);
}
void memplan_take(int64_t* into) {
  allocator().take(into);
}
int64_t memplan_this_thread() {
  return this_thread();
}
uint64_t memplan_recorded_events(Event* into, uint64_t most, uint64_t* dropped) {
  return allocator().events(into, most, dropped);
}
}
