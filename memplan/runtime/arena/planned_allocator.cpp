// An allocator for CPU tensors that puts the n-th allocation of a step where a plan says.
//
// It is never wrong, only less useful: an allocation whose size is not the planned one, or whose place somebody still
// uses, goes to PyTorch's own allocator instead and is counted.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint64_t kOutside = UINT64_MAX; // Offset of an allocation that is not planned.
constexpr uint8_t kPriority = 100; // Above PyTorch's own; also what is needed to take the allocator off again.

enum class Mode { kOff, kRecord, kPlay };

struct Event {
  int64_t key; // Number of the allocation, from 0.
  int64_t bytes; // -1: it is given back.
};

struct Counts {
  uint64_t planned; // Allocations served at their place.
  uint64_t outside; // Allocations that the plan leaves to PyTorch.
  uint64_t unlike; // Of another size than planned, or more of them than planned.
  uint64_t occupied; // Whose place somebody still used.
  uint64_t outside_bytes; // Bytes of all that PyTorch's allocator served.
  uint64_t alive; // Planned allocations that are still alive.
};

class PlannedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    std::lock_guard<std::mutex> guard(mutex_);
    void* place = mode_ == Mode::kPlay && mine() ? planned(bytes) : nullptr;
    if (place == nullptr) {
      place = pytorch()->raw_allocate(bytes);
      if (mode_ == Mode::kRecord && bytes > 0 && mine()) {
        recorded_[place] = next_;
        events_.push_back({next_++, static_cast<int64_t>(bytes)});
      }
    }
    return {place, place, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void record() {
    std::lock_guard<std::mutex> guard(mutex_);
    start(Mode::kRecord);
    events_.clear();
    recorded_.clear();
  }

  void play(char* arena, uint64_t arena_bytes, const uint64_t* sizes, const uint64_t* offsets, uint64_t count) {
    std::lock_guard<std::mutex> guard(mutex_);
    start(Mode::kPlay);
    arena_ = arena;
    arena_end_ = arena + arena_bytes;
    sizes_.assign(sizes, sizes + count);
    offsets_.assign(offsets, offsets + count);
    counts_ = {};
  }

  void stop() {
    std::lock_guard<std::mutex> guard(mutex_);
    mode_ = Mode::kOff;
    c10::SetCPUAllocator(pytorch(), kPriority);
  }

  Counts counts() {
    std::lock_guard<std::mutex> guard(mutex_);
    counts_.alive = live_.size();
    return counts_;
  }

  uint64_t events(Event* into) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (into != nullptr) {
      std::copy(events_.begin(), events_.end(), into);
    }
    return events_.size();
  }

  void gone(void* place) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto planned = live_.find(static_cast<char*>(place));
    if (planned != live_.end()) {
      live_.erase(planned);
      return;
    }
    auto known = recorded_.find(place);
    if (known != recorded_.end()) {
      if (mode_ == Mode::kRecord) {
        events_.push_back({known->second, -1});
      }
      recorded_.erase(known);
    }
    pytorch()->raw_deallocate(place);
  }

 private:
  static void release(void* place);

  static c10::Allocator* pytorch() {
    return c10::GetDefaultCPUAllocator();
  }

  // Other threads' allocations come in no fixed order.
  bool mine() const {
    return std::this_thread::get_id() == thread_;
  }

  void start(Mode mode) {
    mode_ = mode;
    thread_ = std::this_thread::get_id();
    next_ = 0;
    c10::SetCPUAllocator(this, kPriority);
  }

  void* planned(size_t bytes) {
    if (bytes == 0) {
      return nullptr;
    }
    const auto index = static_cast<size_t>(next_++);
    char* place = nullptr;
    if (index >= sizes_.size() || sizes_[index] != bytes) {
      counts_.unlike++;
    } else if (offsets_[index] == kOutside) {
      counts_.outside++;
    } else if (place = arena_ + offsets_[index]; place + bytes > arena_end_ || occupied(place, place + bytes)) {
      counts_.occupied++;
      place = nullptr;
    }
    if (place == nullptr) {
      counts_.outside_bytes += bytes;
      return nullptr;
    }
    counts_.planned++;
    live_[place] = place + bytes;
    return place;
  }

  bool occupied(char* start, char* end) const {
    auto above = live_.lower_bound(start);
    if (above != live_.end() && above->first < end) {
      return true;
    }
    return above != live_.begin() && std::prev(above)->second > start;
  }

  std::mutex mutex_;
  Mode mode_ = Mode::kOff;
  std::thread::id thread_;
  int64_t next_ = 0;
  std::vector<Event> events_;
  std::unordered_map<void*, int64_t> recorded_;
  char* arena_ = nullptr;
  char* arena_end_ = nullptr;
  std::vector<uint64_t> sizes_;
  std::vector<uint64_t> offsets_;
  std::map<char*, char*> live_; // Start and end of what lies in some arena, of this step or an earlier one.
  Counts counts_ = {};
};

// Never destroyed: tensors may give memory back while the process ends.
PlannedAllocator& allocator() {
  static auto* only = new PlannedAllocator();
  return *only;
}

void PlannedAllocator::release(void* place) {
  if (place != nullptr) {
    allocator().gone(place);
  }
}

} // namespace

extern "C" {
void memplan_record() {
  allocator().record();
}
void memplan_play(char* arena, uint64_t bytes, const uint64_t* sizes, const uint64_t* offsets, uint64_t count) {
  allocator().play(arena, bytes, sizes, offsets, count);
}
void memplan_stop() {
  allocator().stop();
}
void memplan_counts(Counts* into) {
  *into = allocator().counts();
}
uint64_t memplan_events(Event* into) {
  return allocator().events(into);
}
}
