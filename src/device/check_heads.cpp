#include "src/device/check_heads.hpp"

#include <fmt/format.h>

namespace lockstep {

namespace {

/// Of a sequence; what follows from them fits 62 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

}  // namespace

void check_heads(const Check& check, const char* name, const Heads& heads) {
    check.real(name, heads.tensor);
    const Shape& shape = heads.tensor.shape();
    check.that(shape.dimensions() == 3, [&] {
        return fmt::format("{} has shape {}; (sequence, batches, columns) is expected",
                           name, shape.text());
    });
    check.that(heads.heads > 0 && heads.width > 0 && heads.first >= 0 &&
                   heads.first <= heads.columns() &&
                   heads.heads <= (heads.columns() - heads.first) / heads.width,
               [&] {
                   return fmt::format(
                       "{} heads of width {} from column {} of {}, which has {}",
                       heads.heads, heads.width, heads.first, name, heads.columns());
               });
}

void check_group(const Check& check, const char* name, std::int64_t heads,
                 const char* whole_name, std::int64_t whole) {
    check.that(heads <= whole && whole % heads == 0, [&] {
        return fmt::format(
            "{} has {} heads, but {} has {}; a number that divides {} is expected", name,
            heads, whole_name, whole, whole);
    });
}

void check_grouped(const Check& check, const char* name, const Heads& heads,
                   const char* whole_name, const Heads& whole) {
    check.dtype(name, heads.tensor, whole.tensor.dtype());
    check.that(heads.batches() == whole.batches() && heads.width == whole.width, [&] {
        return fmt::format(
            "{} has {} batches of heads of width {}, but {} has {} of width {}", name,
            heads.batches(), heads.width, whole_name, whole.batches(), whole.width);
    });
    check_group(check, name, heads.heads, whole_name, whole.heads);
}

void check_tokens(const Check& check, const char* name, const TokenRows& tokens,
                  std::int64_t rows) {
    const bool dealt = tokens.order != TokenOrder::contiguous;
    check.that(tokens.first >= 0 &&
                   (!dealt || (tokens.ranks > 0 && tokens.share > 0 &&
                               tokens.ranks <= kMostTokens / tokens.share &&
                               rows <= tokens.ranks * tokens.share &&
                               tokens.first <= tokens.ranks * tokens.share - rows)) &&
                   tokens.first <= kMostTokens,
               [&] {
                   return fmt::format(
                       "{} has {} rows, from row {} of a sequence dealt to {} ranks, "
                       "{} tokens each",
                       name, rows, tokens.first, tokens.ranks, tokens.share);
               });
    check.that(tokens.order != TokenOrder::zigzag || tokens.share % 2 == 0, [&] {
        return fmt::format(
            "{} tokens a rank of {} in zigzag order, which deals two stretches of "
            "equal length to each; an even number is expected",
            tokens.share, name);
    });
}

std::int64_t bytes_of_view(const Heads& heads) {
    return heads.rows() * heads.batches() * heads.heads * heads.width *
           bytes_of(heads.tensor.dtype());
}

}  // namespace lockstep
