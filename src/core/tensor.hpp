#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/core/dtype.hpp"
#include "src/core/shape.hpp"
#include "src/core/source_line.hpp"
#include "src/core/units.hpp"

namespace lockstep {

/// The moment of a program at which something was done; the program names its phases.
struct Moment {
    const char* phase = "";  ///< "forward"; empty outside of phases
    int micro_batch = -1;    ///< of the phase; negative if it has none
    int step = 0;            ///< the number of updates before this moment
    Picoseconds time = 0;    ///< virtual
};

class Device;

/// The purposes of memory. The ledger keeps current and peak bytes for each purpose.
enum class MemoryCategory : std::uint8_t {
    parameters,
    gradients,
    optimizer,
    activations,
    communication,
    workspace,
    cache,  ///< keys and values of tokens that were computed before
};
inline constexpr int kMemoryCategories = 7;

constexpr const char* name_of(MemoryCategory category) {
    constexpr const char* kNames[kMemoryCategories] = {
        "parameters",    "gradients", "optimizer", "activations",
        "communication", "workspace", "cache"};
    return kNames[static_cast<int>(category)];
}

/// Device memory behind one or more tensors. A device allocates the memory, and gets it
/// back when the last tensor is destroyed. If the device is destroyed first, the device
/// frees the memory. The reference count is not atomic: a device and its tensors belong
/// to one thread of control at a time.
class Storage {
  public:
    Device* device = nullptr;   ///< null after the device is destroyed
    std::byte* data = nullptr;  ///< null if the run computes shapes only
    std::int64_t bytes = 0;
    MemoryCategory category = MemoryCategory::activations;
    bool counted =
        true;  ///< false for a communicator's scratch, which the ledger leaves out
    bool pinned = false;  ///< host memory that a device can copy from and to directly
    SourceLine allocated_at;
    Moment allocated_in;
    /// A name, such as "hidden.weight", of the whole storage or of a range of its bytes.
    struct Label {
        std::int64_t begin = 0;
        std::int64_t bytes = 0;
        std::string name;
        std::string part{};  ///< which part of `name`: "rows 4–7"; empty if all
    };
    std::vector<Label> labels;
    /// Returns the names of the labels that overlap these bytes: "a, b, c and 4 more".
    std::string names(std::int64_t begin, std::int64_t end) const;
    Storage* previous = nullptr;  ///< the device's list of live storage
    Storage* next = nullptr;

    /// Returns the number of tensors that share this storage.
    int references() const { return references_; }

  private:
    int references_ = 0;
    friend void intrusive_ptr_add_ref(Storage* storage) { ++storage->references_; }
    friend void intrusive_ptr_release(Storage* storage);
};

/// A contiguous, row-major array on a device; copies share the storage.
class Tensor {
  public:
    Tensor() = default;
    Tensor(boost::intrusive_ptr<Storage> storage, Shape shape, DType dtype)
        : storage_(std::move(storage)), shape_(shape), dtype_(dtype) {}

    /// False for a default-constructed tensor, which stands for "none".
    explicit operator bool() const { return storage_ != nullptr; }

    const Shape& shape() const { return shape_; }
    DType dtype() const { return dtype_; }
    std::int64_t elements() const { return shape_.elements(); }
    std::int64_t bytes() const { return elements() * bytes_of(dtype_); }

    /// Rows [begin, begin + count) of the first dimension, without a copy.
    Tensor rows(std::int64_t begin, std::int64_t count,
                SourceLine at = SourceLine::here()) const;

    /// Returns a view of the same elements under another shape, without a copy.
    Tensor reshaped(Shape shape, SourceLine at = SourceLine::here()) const;

    /// Returns a view of the same elements as one row: shape (elements).
    Tensor flat() const;
    /// Elements [begin, begin + count) of flat(), without a copy.
    Tensor slice(std::int64_t begin, std::int64_t count,
                 SourceLine at = SourceLine::here()) const;

    /// Returns `count` elements as one row, from this tensor's first element on. The row
    /// may be longer than the tensor, up to the end of the storage.
    Tensor extended(std::int64_t count) const;

    /// The address of the first element on the device; it is null if the run computes
    /// shapes only.
    template <typename T>
    T* data() const {
        return reinterpret_cast<T*>(bytes_begin());
    }
    std::byte* bytes_begin() const {
        return storage_ && storage_->data ? storage_->data + offset_ : nullptr;
    }

    const Storage* storage() const { return storage_.get(); }
    Device* device() const { return storage_ ? storage_->device : nullptr; }
    /// Names the tensor's memory, for messages: all of its storage or, for a view, a
    /// range. If the named tensor is sharded, `part` says which part this is.
    void set_label(const std::string& label, const std::string& part = "") const;
    /// Returns the name of the smallest named range that contains this tensor; empty if
    /// there is none.
    const std::string& label() const;
    /// Returns the smallest named range that contains this tensor; null if there is none.
    const Storage::Label* labelled() const;
    /// Returns the byte of the storage at which this tensor begins.
    std::int64_t offset_bytes() const { return offset_; }

    /// Returns whether the two tensors share at least one byte.
    bool overlaps(const Tensor& other) const;

  private:
    boost::intrusive_ptr<Storage> storage_;
    std::int64_t offset_ = 0;
    Shape shape_;
    DType dtype_ = DType::f32;
};

}  // namespace lockstep
