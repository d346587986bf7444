#include "src/core/wire.hpp"

#include <cstring>

#include <fmt/format.h>

namespace lockstep {

void WireWriter::put_bytes(const void* data, std::size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
}

void WireWriter::put_text(std::string_view text) {
    put_number(static_cast<std::int64_t>(text.size()));
    put_bytes(text.data(), text.size());
}

void WireWriter::put_host(const HostTensor& values) {
    put(values.shape());
    put(values.dtype());
    put_bytes(values.data(), static_cast<std::size_t>(values.bytes()));
}

void WireReader::take_bytes(void* data, std::size_t bytes) {
    if (bytes > bytes_.size()) throw WireError("a message is too short");
    if (bytes > 0) std::memcpy(data, bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
}

std::int64_t WireReader::number(std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    take_bytes(&value, sizeof value);
    if (value < low || value > high)
        throw WireError(fmt::format("a message has the number {}; {} to {} is expected",
                                    value, low, high));
    return value;
}

void WireReader::end() const {
    if (!bytes_.empty()) throw WireError("a message is too long");
}

std::int64_t WireReader::take_size(std::int64_t most) {
    return number(0, names_ ? most : static_cast<std::int64_t>(bytes_.size()));
}

std::string WireReader::take_text() {
    std::string text(static_cast<std::size_t>(take_size(kMostText)), '\0');
    take_bytes(text.data(), text.size());
    return text;
}

HostTensor WireReader::take_host() {
    const Shape shape = take_shape();
    const auto dtype = get<DType>();
    // Check this before memory for the tensor is allocated.
    if (static_cast<std::size_t>(shape.elements() * bytes_of(dtype)) > bytes_.size())
        throw WireError("a message is too short");
    HostTensor values(shape, dtype);
    take_bytes(values.data(), static_cast<std::size_t>(values.bytes()));
    return values;
}

SourceLine WireReader::take_line() {
    const std::string file = take_text();
    const auto line = static_cast<int>(number(0, 1 << 30));
    return names_ ? names_->source_line(file, line) : SourceLine::of(file, line);
}

Shape WireReader::take_shape() {
    std::int64_t extents[Shape::kMaxDimensions] = {};
    const auto dimensions = static_cast<int>(number(0, Shape::kMaxDimensions));
    std::int64_t elements = 1;
    for (int d = 0; d < dimensions; ++d) {
        extents[d] = number(0, kMostElementsSent);
        if (extents[d] > 0 && elements > kMostElementsSent / extents[d])
            throw WireError("a message has too large a shape");
        elements *= extents[d];
    }
    return Shape(extents, dimensions);
}

}  // namespace lockstep
