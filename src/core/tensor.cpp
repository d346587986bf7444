#include "src/core/tensor.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

Tensor Tensor::rows(std::int64_t begin, std::int64_t count, SourceLine at) const {
    require(
        shape_.dimensions() > 0 && begin >= 0 && count >= 0 && count <= shape_[0] - begin,
        at, "a tensor of shape {} has no {} rows from row {} on{}", shape_, count, begin,
        hint_of_no_count(std::min(begin, count)));
    Tensor view = *this;
    view.shape_ = shape_.with_first(count);
    if (shape_[0] > 0) view.offset_ += begin * (bytes() / shape_[0]);
    return view;
}

Tensor Tensor::reshaped(Shape shape, SourceLine at) const {
    require(shape.elements() == elements(), at,
            "a tensor of shape {} cannot be seen as {}: {} elements, not {}", shape_,
            shape, elements(), shape.elements());
    Tensor view = *this;
    view.shape_ = shape;
    return view;
}

Tensor Tensor::flat() const {
    return slice(0, elements());
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t count, SourceLine at) const {
    require(begin >= 0 && count >= 0 && count <= elements() - begin, at, [&] {
        return fmt::format(
            "a tensor of {} elements has no {} elements from element {} on{}", elements(),
            count, begin, hint_of_no_count(std::min(begin, count)));
    });
    Tensor view = *this;
    view.shape_ = Shape::flat(count);
    view.offset_ += begin * bytes_of(dtype_);
    return view;
}

Tensor Tensor::extended(std::int64_t count) const {
    require(offset_ + count * bytes_of(dtype_) <= storage_->bytes,
            "{} elements were asked for, beyond the end of the storage", count);
    Tensor view = *this;
    view.shape_ = Shape::flat(count);
    return view;
}

std::string Storage::names(std::int64_t begin, std::int64_t end) const {
    constexpr int kMost = 3;
    std::string text;
    int count = 0;
    for (const Label& label : labels) {
        if (label.begin >= end || label.begin + label.bytes <= begin) continue;
        if (count++ < kMost) text += (text.empty() ? "" : ", ") + label.name;
    }
    if (count > kMost) text += fmt::format(" and {} more", count - kMost);
    return text;
}

void Tensor::set_label(const std::string& label, const std::string& part) const {
    if (!storage_) return;
    for (Storage::Label& known : storage_->labels)
        if (known.begin == offset_ && known.bytes == bytes()) {
            known.name = label;
            known.part = part;
            return;
        }
    storage_->labels.push_back({offset_, bytes(), label, part});
}

const Storage::Label* Tensor::labelled() const {
    const Storage::Label* closest = nullptr;
    if (!storage_) return closest;
    for (const Storage::Label& known : storage_->labels) {
        const bool holds_this =
            known.begin <= offset_ && offset_ + bytes() <= known.begin + known.bytes;
        if (holds_this && (closest == nullptr || known.bytes < closest->bytes))
            closest = &known;
    }
    return closest;
}

const std::string& Tensor::label() const {
    static const std::string none;
    const Storage::Label* range = labelled();
    return range ? range->name : none;
}

bool Tensor::overlaps(const Tensor& other) const {
    return storage_ && storage_ == other.storage_ && bytes() > 0 && other.bytes() > 0 &&
           offset_ < other.offset_ + other.bytes() && other.offset_ < offset_ + bytes();
}

}  // namespace lockstep
