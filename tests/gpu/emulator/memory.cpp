#include "tests/gpu/emulator/memory.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/red_zone.hpp"
#include "tests/gpu/emulator/sanitizers.hpp"
#include "tests/gpu/emulator/settings.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

constexpr std::size_t kQuarantineBytes = 64 << 20;
constexpr std::size_t kLookedAt = 16;  ///< how many freed allocations are tried

std::size_t rounded(std::size_t bytes) {
    return (bytes + 511) / 512 * 512;
}

class Memory {
  public:
    Memory() {
        std::atexit([] { immortal<Memory>().check_all(); });
    }

    void* allocate(MemoryKind kind, int device, std::size_t bytes) {
        std::unique_lock lock(mutex_);
        if (kind == MemoryKind::device) {
            const auto capacity = static_cast<std::size_t>(settings().gpu_bytes);
            changed_.wait(lock, [&] {
                return used_[device] + rounded(bytes) <= capacity || freeing_ == 0;
            });
            if (used_[device] + rounded(bytes) > capacity) return nullptr;
            used_[device] += rounded(bytes);
        }
        char* data = make_with_red_zones(bytes);
        allocations_[address(data)] = {data, bytes, kind, device, ++lifetimes_, false};
        return data;
    }

    void* allocate_again(const Stream& stream, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        if (static_cast<int>(shaker_.below(100)) >= settings().memory_reuse)
            return nullptr;
        const auto offered = offers_.find({stream.device(), bytes});
        if (offered == offers_.end()) return nullptr;
        // As in CUDA's pools, memory that was freed last is given first.
        std::deque<Offer>& offers = offered->second;
        const std::size_t first =
            offers.size() < kLookedAt ? 0 : offers.size() - kLookedAt;
        for (std::size_t i = offers.size(); i > first; --i) {
            const Offer& offer = offers[i - 1];
            if (!stream.is_behind(*offer.point) && !offer.point->reached()) continue;
            char* const data = give_again(offer);
            offers.erase(offers.begin() + static_cast<std::ptrdiff_t>(i) - 1);
            if (data != nullptr) return data;
        }
        return nullptr;
    }

    std::optional<Allocation> find(const void* pointer) {
        const std::lock_guard lock(mutex_);
        auto after = allocations_.upper_bound(address(pointer));
        if (after == allocations_.begin()) return std::nullopt;
        const Allocation& found = std::prev(after)->second;
        const std::size_t offset = address(pointer) - address(found.data);
        if (found.freed || offset >= found.bytes) return std::nullopt;
        return found;
    }

    std::uint64_t begin_free(void* pointer, MemoryKind kind) {
        const std::lock_guard lock(mutex_);
        const auto found = allocations_.find(address(pointer));
        if (found == allocations_.end() || found->second.freed ||
            found->second.kind != kind)
            return 0;
        found->second.freed = true;
        ++freeing_;
        return found->second.lifetime;
    }

    void offer_again(void* pointer, std::uint64_t lifetime,
                     std::shared_ptr<Point> point) {
        const std::lock_guard lock(mutex_);
        const Allocation* const freed = freed_with(pointer, lifetime);
        if (freed == nullptr) return;
        std::deque<Offer>& offers = offers_[{freed->device, freed->bytes}];
        while (!offers.empty() &&
               freed_with(offers.front().data, offers.front().lifetime) == nullptr)
            offers.pop_front();
        offers.push_back({freed->data, lifetime, std::move(point)});
    }

    void finish_free(void* pointer, std::uint64_t lifetime) {
        const std::lock_guard lock(mutex_);
        const auto found = allocations_.find(address(pointer));
        if (found == allocations_.end()) return;  // reused, and then freed again
        const Allocation gone = found->second;
        check_red_zones(gone.data, gone.bytes);
        make_nan(gone.data, gone.bytes);
        if (gone.lifetime != lifetime) return;
        allocations_.erase(found);
        forbid(gone.data, gone.bytes);
        if (gone.kind == MemoryKind::device) used_[gone.device] -= rounded(gone.bytes);
        --freeing_;
        changed_.notify_all();
        quarantine_[address(gone.data)] = gone;
        by_age_.push_back(gone);
        quarantined_ += gone.bytes;
        while (quarantined_ > kQuarantineBytes)
            release_oldest();
    }

    std::size_t used(int device) {
        const std::lock_guard lock(mutex_);
        return used_[device];
    }

    void check_all() {
        const std::lock_guard lock(mutex_);
        for (const auto& [where, allocation] : allocations_)
            check_red_zones(allocation.data, allocation.bytes);
        while (!by_age_.empty())
            release_oldest();
    }

  private:
    static std::uintptr_t address(const void* pointer) {
        return reinterpret_cast<std::uintptr_t>(pointer);
    }

    /// Freed memory that can be given again.
    struct Offer {
        char* data;
        std::uint64_t lifetime;
        std::shared_ptr<Point> point;  ///< of the free
    };

    /// Returns the allocation with this lifetime if it is freed and was not given again.
    const Allocation* freed_with(const void* pointer, std::uint64_t lifetime) const {
        for (const auto* allocations : {&allocations_, &quarantine_}) {
            const auto found = allocations->find(address(pointer));
            if (found != allocations->end() && found->second.lifetime == lifetime)
                return &found->second;
        }
        return nullptr;
    }

    /// Returns the offer's data for a new lifetime; null if the data are gone.
    char* give_again(const Offer& offer) {
        const auto waiting = allocations_.find(address(offer.data));
        if (waiting != allocations_.end() && waiting->second.lifetime == offer.lifetime) {
            // The free has not run yet. Operations that enter the stream from now on
            // run after it.
            waiting->second.lifetime = ++lifetimes_;
            waiting->second.freed = false;
            --freeing_;
            changed_.notify_all();
            return offer.data;
        }
        const auto resting = quarantine_.find(address(offer.data));
        if (resting == quarantine_.end() || resting->second.lifetime != offer.lifetime)
            return nullptr;
        const std::size_t bytes = rounded(resting->second.bytes);
        const int device = resting->second.device;
        if (used_[device] + bytes > static_cast<std::size_t>(settings().gpu_bytes))
            return nullptr;
        used_[device] += bytes;
        Allocation again = leave_quarantine(resting);
        again.lifetime = ++lifetimes_;
        again.freed = false;
        allocations_[address(again.data)] = again;
        return again.data;
    }

    using Allocations = std::map<std::uintptr_t, Allocation>;

    /// Checks that nothing was written to this memory since the free.
    Allocation leave_quarantine(Allocations::iterator resting) {
        const Allocation left = resting->second;
        quarantine_.erase(resting);
        quarantined_ -= left.bytes;
        check_red_zones(left.data, left.bytes);
        unforbid(left.data, left.bytes);
        for (std::size_t i = 0; i < left.bytes; ++i)
            if (left.data[i] != '\xff')
                die("byte " + std::to_string(i) + " of an allocation of " +
                    std::to_string(left.bytes) + " bytes was written after the free");
        return left;
    }

    void release_oldest() {
        const Allocation oldest = by_age_.front();
        by_age_.pop_front();
        const auto resting = quarantine_.find(address(oldest.data));
        if (resting == quarantine_.end() || resting->second.lifetime != oldest.lifetime)
            return;  // the memory was given again
        leave_quarantine(resting);
        destroy_with_red_zones(oldest.data);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    Allocations allocations_;
    std::uint64_t lifetimes_ = 0;
    std::map<int, std::size_t> used_;
    int freeing_ = 0;
    Allocations quarantine_;
    std::deque<Allocation> by_age_;  ///< in the order in which they entered quarantine
    std::size_t quarantined_ = 0;
    std::map<std::pair<int, std::size_t>, std::deque<Offer>>
        offers_;  ///< by device and bytes
    Shaker shaker_{settings().seed};
};

}  // namespace

void* allocate(MemoryKind kind, int device, std::size_t bytes) {
    return immortal<Memory>().allocate(kind, device, bytes);
}

std::optional<Allocation> find_memory(const void* address) {
    return immortal<Memory>().find(address);
}

void* allocate_again(const Stream& stream, std::size_t bytes) {
    return immortal<Memory>().allocate_again(stream, bytes);
}

std::uint64_t begin_free(void* pointer, MemoryKind kind) {
    return immortal<Memory>().begin_free(pointer, kind);
}

void offer_again(void* pointer, std::uint64_t lifetime, std::shared_ptr<Point> point) {
    immortal<Memory>().offer_again(pointer, lifetime, std::move(point));
}

void finish_free(void* pointer, std::uint64_t lifetime) {
    immortal<Memory>().finish_free(pointer, lifetime);
}

void make_nan(void* pointer, std::size_t bytes) {
    std::memset(pointer, 0xff, bytes);
}

std::size_t bytes_in_use(int device) {
    return immortal<Memory>().used(device);
}

void require_reachable(const void* pointer, std::size_t bytes, const std::string& what) {
    if (bytes == 0) return;
    const std::optional<Allocation> found = find_memory(pointer);
    if (!found) die(what + " is not in memory that a GPU can reach");
    const auto before =
        static_cast<std::size_t>(static_cast<const char*>(pointer) - found->data);
    if (before + bytes > found->bytes)
        die(what + " takes " + std::to_string(bytes) + " bytes, but " +
            std::to_string(found->bytes - before) + " are left of its allocation of " +
            std::to_string(found->bytes));
}

}  // namespace emulated
