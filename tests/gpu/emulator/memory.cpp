#include "tests/gpu/emulator/memory.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/red_zone.hpp"
#include "tests/gpu/emulator/sanitizers.hpp"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

namespace {

constexpr std::size_t kQuarantineBytes = 64 << 20;

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
        allocations_[address(data)] = {data, bytes, kind, device, false};
        return data;
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

    bool begin_free(void* pointer, MemoryKind kind) {
        const std::lock_guard lock(mutex_);
        const auto found = allocations_.find(address(pointer));
        if (found == allocations_.end() || found->second.freed ||
            found->second.kind != kind)
            return false;
        found->second.freed = true;
        ++freeing_;
        return true;
    }

    void finish_free(void* pointer) {
        const std::lock_guard lock(mutex_);
        const auto node = allocations_.extract(address(pointer));
        const Allocation& gone = node.mapped();
        check_red_zones(gone.data, gone.bytes);
        make_nan(gone.data, gone.bytes);
        forbid(gone.data, gone.bytes);
        if (gone.kind == MemoryKind::device) used_[gone.device] -= rounded(gone.bytes);
        --freeing_;
        changed_.notify_all();
        quarantine_.push_back(gone);
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
        while (!quarantine_.empty())
            release_oldest();
    }

  private:
    static std::uintptr_t address(const void* pointer) {
        return reinterpret_cast<std::uintptr_t>(pointer);
    }

    void release_oldest() {
        const Allocation oldest = quarantine_.front();
        quarantine_.pop_front();
        quarantined_ -= oldest.bytes;
        check_red_zones(oldest.data, oldest.bytes);
        unforbid(oldest.data, oldest.bytes);
        for (std::size_t i = 0; i < oldest.bytes; ++i)
            if (oldest.data[i] != '\xff')
                die("byte " + std::to_string(i) + " of " + std::to_string(oldest.bytes) +
                    " in freed memory was written after its free");
        destroy_with_red_zones(oldest.data);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uintptr_t, Allocation> allocations_;
    std::map<int, std::size_t> used_;
    int freeing_ = 0;
    std::deque<Allocation> quarantine_;
    std::size_t quarantined_ = 0;
};

}  // namespace

void* allocate(MemoryKind kind, int device, std::size_t bytes) {
    return immortal<Memory>().allocate(kind, device, bytes);
}

std::optional<Allocation> find_memory(const void* address) {
    return immortal<Memory>().find(address);
}

bool begin_free(void* pointer, MemoryKind kind) {
    return immortal<Memory>().begin_free(pointer, kind);
}

void finish_free(void* pointer) {
    immortal<Memory>().finish_free(pointer);
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
