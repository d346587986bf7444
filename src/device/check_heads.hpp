#pragma once

#include "src/device/check.hpp"

namespace lockstep {

/// (sequence, batches, columns), with the columns that the heads take.
void check_heads(const Check& check, const char* name, const Heads& heads);

/// A number of heads that divides `whole`.
void check_group(const Check& check, const char* name, std::int64_t heads,
                 const char* whole_name, std::int64_t whole);

/// The same, and as many batches and columns a head, of one type.
void check_grouped(const Check& check, const char* name, const Heads& heads,
                   const char* whole_name, const Heads& whole);

/// Rows that a dealt sequence has.
void check_tokens(const Check& check, const char* name, const TokenRows& tokens,
                  std::int64_t rows);

/// What is read or written of a view's columns.
std::int64_t bytes_of_view(const Heads& heads);

}  // namespace lockstep
