#pragma once

#include <string>

#include "lessons/assignments/decode/grading/host_gpt.hpp"

// Why tokens are wrong is seen from the tokens: each usual mistake leaves others.

namespace lockstep::lessons::decode {

/// Returns whether no two mistakes leave the same wrong tokens.
bool tells_mistakes_apart(const GenerationCase& of);

/// Returns the case with weights by which it tells mistakes apart: its own, or those of
/// one of the next seeds; its own if these do not either.
GenerationCase with_telling_weights(GenerationCase of);

/// Returns why these tokens were left, as far as that can be seen.
std::string cause_of(const GenerationCase& of, const HostGpt& gpt,
                     const TokensOfRanks& expected, const TokensOfRanks& left);

}  // namespace lockstep::lessons::decode
