#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emulated {

/// The objects of a library's opaque handles. Each handle is a number that is given only
/// once, so the handle of a destroyed object never finds another object.
template <typename Handle, typename T>
class Handles {
  public:
    Handle add(std::shared_ptr<T> object) {
        const std::lock_guard lock(mutex_);
        const std::uintptr_t number = next_;
        next_ += 16;
        objects_[number] = std::move(object);
        return reinterpret_cast<Handle>(number);
    }

    /// Returns null if the handle has no live object.
    std::shared_ptr<T> find(Handle handle) const {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        return found == objects_.end() ? nullptr : found->second;
    }

    /// Finds the object and removes its handle.
    std::shared_ptr<T> remove(Handle handle) {
        const std::lock_guard lock(mutex_);
        const auto node = objects_.extract(reinterpret_cast<std::uintptr_t>(handle));
        return node.empty() ? nullptr : node.mapped();
    }

    std::vector<std::shared_ptr<T>> all() const {
        const std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<T>> objects;
        for (const auto& [number, object] : objects_)
            objects.push_back(object);
        return objects;
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::uintptr_t, std::shared_ptr<T>> objects_;
    std::uintptr_t next_ = 0x1000;
};

/// An object that is never destroyed, so it outlives all threads of the process.
template <typename T>
T& immortal() {
    static T* const object = new T;
    return *object;
}

}  // namespace emulated
