// PyTorch's CPU allocator with counters, and on request with a history: CUDA's allocator has both, the CPU's neither.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace {

constexpr uint8_t kPriority = 100; // Above PyTorch's own; also what is needed to take the allocator off again.
constexpr size_t kShards = 16; // Locks: threads that allocate at once seldom meet.
// Every so manieth allocation is timed, for two looks at the clock take longer than all else here. A prime: a loop's
// allocations then take turns.
constexpr int64_t kTimed = 17;
constexpr auto kRelaxed = std::memory_order_relaxed; // Statistics order nothing.
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
  const size_t digits = number > 0 ? 64 - static_cast<size_t>(__builtin_clzll(static_cast<uint64_t>(number))) : 0;
  return std::min(digits, kPowers - 1);
}

int64_t this_thread() {
  static std::atomic<int64_t> next{0};
  thread_local const int64_t mine = next++;
  return mine;
}

// Sizes of live blocks by address: linear probing, at most half full. Small and in one piece, so that looking things up
// pushes little of the program's own data out of the caches.
class Sizes {
 public:
  void put(void* place, int64_t bytes) {
    if (2 * (used_ + 1) > slots_.size()) {
      grow();
    }
    size_t index = home(place);
    while (slots_[index].place != nullptr && slots_[index].place != place) {
      index = next(index);
    }
    used_ += slots_[index].place == nullptr;
    slots_[index] = {place, bytes};
  }

  // The bytes at an address, which is then forgotten; 0 where there are none.
  int64_t take(void* place) {
    if (used_ == 0) {
      return 0;
    }
    size_t hole = home(place);
    while (slots_[hole].place != place) {
      if (slots_[hole].place == nullptr) {
        return 0;
      }
      hole = next(hole);
    }
    const int64_t bytes = slots_[hole].bytes;
    // What follows moves up, where a search for it would come through the hole.
    for (size_t index = next(hole); slots_[index].place != nullptr; index = next(index)) {
      const size_t wanted = home(slots_[index].place);
      if (((index - wanted) & mask()) >= ((index - hole) & mask())) {
        slots_[hole] = slots_[index];
        hole = index;
      }
    }
    slots_[hole] = {nullptr, 0};
    used_--;
    return bytes;
  }

 private:
  struct Slot {
    void* place;
    int64_t bytes;
  };

  size_t mask() const {
    return slots_.size() - 1;
  }

  size_t next(size_t index) const {
    return (index + 1) & mask();
  }

  // Knuth's multiplicative hash; the low bits of addresses are those that say least.
  size_t home(void* place) const {
    return ((reinterpret_cast<uintptr_t>(place) * 0x9E3779B97F4A7C15ULL) >> 32) & mask();
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size(), Slot{nullptr, 0});
    old.swap(slots_);
    used_ = 0;
    for (const Slot& slot : old) {
      if (slot.place != nullptr) {
        put(slot.place, slot.bytes);
      }
    }
  }

  std::vector<Slot> slots_; // A power of two.
  size_t used_ = 0;
};

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const bool timed = turns_.fetch_add(1, kRelaxed) % kTimed == 0;
    const int64_t began = timed ? now() : 0;
    void* place = pytorch()->raw_allocate(bytes);
    if (place != nullptr && bytes > 0) {
      if (timed) {
        const int64_t lasted = now() - began;
        spent_.fetch_add(lasted, kRelaxed);
        times_[power_above(lasted)].fetch_add(1, kRelaxed);
      }
      took(place, static_cast<int64_t>(bytes));
      note(place, static_cast<int64_t>(bytes));
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
      bytes = shard.sizes.take(place);
      add(shard.frees, bytes > 0);
    }
    if (bytes > 0) {
      allocated_.fetch_sub(bytes, kRelaxed);
      sizes_[power_above(bytes)].fetch_sub(bytes, kRelaxed);
      // Before the memory is given back, or another thread's allocation of the same place could come first.
      note(place, -bytes);
    }
    pytorch()->raw_deallocate(place);
  }

  void read(Counters* into) const {
    *into = {allocated_, peak_, 0, 0, 0, spent_, {}, {}};
    for (const Shard& shard : shards_) {
      into->allocations += shard.allocations.load(kRelaxed);
      into->frees += shard.frees.load(kRelaxed);
      into->total += shard.total.load(kRelaxed);
    }
    for (size_t index = 0; index < kPowers; index++) {
      into->times[index] = times_[index];
      into->sizes[index] = sizes_[index];
    }
  }

  void reset_peak() {
    peak_ = allocated_.load();
  }

  // The counters without the times. The peak is one of its own: that since the last call.
  void take(int64_t* into) {
    const int64_t alive = allocated_;
    // What another thread takes just now may miss the old peak; it counts to the next one, which is never below it.
    into[0] = alive;
    into[1] = std::max(taken_peak_.exchange(alive), alive);
    into[2] = into[3] = 0;
    for (const Shard& shard : shards_) {
      into[2] += shard.allocations.load(kRelaxed);
      into[3] += shard.total.load(kRelaxed);
    }
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
  // Its counters are written under its lock, and read without.
  struct alignas(64) Shard {
    std::mutex mutex;
    Sizes sizes;
    std::atomic<int64_t> allocations{0}, frees{0}, total{0};
  };

  static void add(std::atomic<int64_t>& counter, int64_t number) {
    counter.store(counter.load(kRelaxed) + number, kRelaxed);
  }

  static void raise(std::atomic<int64_t>& peak, int64_t alive) {
    int64_t most = peak.load(kRelaxed);
    while (alive > most && !peak.compare_exchange_weak(most, alive, kRelaxed)) {
    }
  }

  static void release(void* place);

  static c10::Allocator* pytorch() {
    return c10::GetDefaultCPUAllocator();
  }

  Shard& shard_of(void* place) {
    return shards_[(reinterpret_cast<uintptr_t>(place) >> 6) % kShards]; // PyTorch aligns to 64 bytes.
  }

  void took(void* place, int64_t bytes) {
    {
      Shard& shard = shard_of(place);
      std::lock_guard<std::mutex> guard(shard.mutex);
      shard.sizes.put(place, bytes);
      add(shard.allocations, 1);
      add(shard.total, bytes);
    }
    const int64_t alive = allocated_.fetch_add(bytes, kRelaxed) + bytes;
    raise(peak_, alive);
    raise(taken_peak_, alive);
    sizes_[power_above(bytes)].fetch_add(bytes, kRelaxed);
  }

  void note(void* place, int64_t bytes) {
    if (!recording_) {
      return;
    }
    const int64_t time = now();
    std::lock_guard<std::mutex> guard(history_);
    if (events_.size() < capacity_) {
      events_.push_back({time, static_cast<int64_t>(reinterpret_cast<uintptr_t>(place)), bytes, this_thread()});
    } else {
      dropped_++;
    }
  }

  std::array<Shard, kShards> shards_;
  std::atomic<int64_t> allocated_{0}, peak_{0}, taken_peak_{0}, turns_{0}, spent_{0};
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
