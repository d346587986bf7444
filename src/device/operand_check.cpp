#include "src/device/operand_check.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/device/device.hpp"

namespace lockstep {

void OperandCheck::refuse(const std::string& what) const {
    const std::string sentence = fmt::format("{}: {}", operation_, what);
    throw at_.line == 0 ? UsageError(sentence) : UsageError(sentence, at_);
}

void OperandCheck::refuse_owner(const char* name, const Tensor& tensor) const {
    if (!tensor) refuse(fmt::format("{} is none; a tensor is expected", name));
    if (tensor.device() == nullptr)
        refuse(fmt::format("{} belongs to a device that is gone", name));
    refuse(fmt::format(
        "{} belongs to device {}, but device {} was asked; devices share nothing but "
        "messages",
        name, tensor.device()->index(), device_.index()));
}

void OperandCheck::real(const char* name, const Tensor& tensor) const {
    own(name, tensor);
    if (!is_floating(tensor.dtype()))
        refuse(fmt::format("{} is {}; f32, f64 or bf16 is expected", name,
                           name_of(tensor.dtype())));
}

void OperandCheck::dtype(const char* name, const Tensor& tensor, DType expected) const {
    own(name, tensor);
    if (tensor.dtype() != expected)
        refuse(fmt::format("{} is {}; {} is expected", name, name_of(tensor.dtype()),
                           name_of(expected)));
}

void OperandCheck::like(const char* name, const Tensor& tensor, const char* other_name,
                        const Tensor& other) const {
    own(name, tensor);
    const Shape& got = tensor.shape();
    const Shape& expected = other.shape();
    if (tensor.dtype() != other.dtype())
        refuse(fmt::format("{} is {}, but {} is {}", name, name_of(tensor.dtype()),
                           other_name, name_of(other.dtype())));
    if (got.matrix_rows() != expected.matrix_rows() ||
        got.columns() != expected.columns())
        refuse(fmt::format("{} has shape {}, but {} has {}", name, got.text(), other_name,
                           expected.text()));
}

void OperandCheck::matrix(const char* name, const Tensor& tensor, std::int64_t rows,
                          std::int64_t columns) const {
    own(name, tensor);
    if (tensor.shape().matrix_rows() != rows || tensor.shape().columns() != columns)
        refuse(fmt::format("{} has shape {}; ({}, {}) is expected", name,
                           tensor.shape().text(), rows, columns));
}

void OperandCheck::row(const char* name, const Tensor& tensor, std::int64_t columns,
                       DType expected) const {
    dtype(name, tensor, expected);
    if (tensor.shape().matrix_rows() != 1 || tensor.shape().columns() != columns)
        refuse(fmt::format("{} has shape {}; ({}) is expected", name,
                           tensor.shape().text(), columns));
}

void OperandCheck::count(const char* name, const Tensor& tensor, std::int64_t count,
                         DType expected) const {
    dtype(name, tensor, expected);
    if (tensor.elements() != count)
        refuse(fmt::format("{} has shape {}, that is {} elements; {} are expected", name,
                           tensor.shape().text(), tensor.elements(), count));
}

void OperandCheck::shape(const char* name, const Tensor& tensor, const Shape& expected,
                         DType expected_dtype) const {
    dtype(name, tensor, expected_dtype);
    that(tensor.shape() == expected, "{} has shape {}; {} is expected", name,
         tensor.shape(), expected);
}

void OperandCheck::heads(const char* name, const Heads& heads) const {
    real(name, heads.tensor);
    const Shape& shape = heads.tensor.shape();
    that(shape.dimensions() == 3,
         "{} has shape {}; (sequence, batches, columns) is expected", name, shape);
    that(
        heads.heads > 0 && heads.width > 0 && heads.first >= 0 &&
            heads.first <= heads.columns() &&
            heads.heads <= (heads.columns() - heads.first) / heads.width,
        "{} heads of width {} from column {} on do not fit into {}, which has {} columns",
        heads.heads, heads.width, heads.first, name, heads.columns());
}

void OperandCheck::group(const char* name, std::int64_t heads, const char* whole_name,
                         std::int64_t whole) const {
    that(heads <= whole && whole % heads == 0,
         "{} has {} heads, but {} has {}; a number that divides {} is expected", name,
         heads, whole_name, whole, whole);
}

void OperandCheck::grouped(const char* name, const Heads& heads, const char* whole_name,
                           const Heads& whole) const {
    dtype(name, heads.tensor, whole.tensor.dtype());
    that(heads.batches() == whole.batches() && heads.width == whole.width,
         "{} has {} batches of heads of width {}, but {} has {} of width {}", name,
         heads.batches(), heads.width, whole_name, whole.batches(), whole.width);
    group(name, heads.heads, whole_name, whole.heads);
}

void OperandCheck::alike(const char* name, const Heads& heads, const char* other_name,
                         const Heads& other) const {
    this->heads(name, heads);
    dtype(name, heads.tensor, other.tensor.dtype());
    that(heads.rows() == other.rows() && heads.batches() == other.batches() &&
             heads.heads == other.heads && heads.width == other.width,
         "{} has {} rows, {} batches and {} heads of width {}, but {} has "
         "{}, {} and {} of width {}",
         name, heads.rows(), heads.batches(), heads.heads, heads.width, other_name,
         other.rows(), other.batches(), other.heads, other.width);
}

void OperandCheck::tokens(const char* name, const TokenRows& tokens,
                          std::int64_t rows) const {
    // The maximum length of a sequence. Numbers computed from it fit into 62 bits.
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
    const bool dealt = tokens.order != TokenOrder::contiguous;
    that(tokens.first >= 0 &&
             (!dealt || (tokens.ranks > 0 && tokens.share > 0 &&
                         tokens.ranks <= kMostTokens / tokens.share &&
                         rows <= tokens.ranks * tokens.share &&
                         tokens.first <= tokens.ranks * tokens.share - rows)) &&
             tokens.first <= kMostTokens,
         "{} has {} rows from row {} on, which do not fit into a sequence that is "
         "sharded over {} ranks with {} tokens each",
         name, rows, tokens.first, tokens.ranks, tokens.share);
    that(tokens.order != TokenOrder::zigzag || tokens.share % 2 == 0,
         "{} has {} tokens on each rank in zigzag order; each rank gets two equal "
         "stretches, so an even number is expected",
         name, tokens.share);
}

VocabularyShard OperandCheck::shard(const VocabularyShard& shard,
                                    std::int64_t extent) const {
    that(shard.first >= 0 && shard.whole >= 0 && (shard.whole > 0 || shard.first == 0),
         "shard.first is {} and shard.whole is {}; neither may be negative, and "
         "shard.whole must be given if shard.first is not 0",
         shard.first, shard.whole);
    return {shard.first, shard.whole > 0 ? shard.whole : extent};
}

void OperandCheck::apart(const char* name, const Tensor& tensor, const char* other_name,
                         const Tensor& other) const {
    if (tensor.overlaps(other))
        refuse(
            fmt::format("{} and {} share memory; they must be apart", name, other_name));
}

void OperandCheck::same_or_apart(const char* name, const Tensor& tensor,
                                 const char* other_name, const Tensor& other) const {
    const bool same = tensor.storage() == other.storage() &&
                      tensor.offset_bytes() == other.offset_bytes() &&
                      tensor.bytes() == other.bytes();
    if (!same && tensor.overlaps(other))
        refuse(fmt::format(
            "{} and {} share a part of their memory; they must be the same or share none",
            name, other_name));
}

}  // namespace lockstep
