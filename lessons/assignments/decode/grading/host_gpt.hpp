#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lessons/assignments/decode/grading/given.hpp"

// Plain loops on the host give what generating should give, and what it gives with a
// usual mistake, by which the grader knows that mistake.

namespace lockstep::lessons::decode {

using Row = std::vector<double>;
/// A matrix is kept row by row.
using Matrix = std::vector<Row>;

struct HostBlock {
    Matrix queries, keys, values, out, up, down;
};

/// The weights of a GPT. Those of norms are 1.
struct HostGpt {
    Sizes sizes;
    Matrix tokens, places, head;
    std::vector<HostBlock> blocks;
};

/// The weights of given::random_gpt.
HostGpt host_gpt(const GenerationCase& of);

enum class Mistake : std::uint8_t {
    none,
    own_keys_late,      ///< attention reads before the pass's keys are stored
    places_again,       ///< the place of a token in its pass is taken for its place
    places_of_output,   ///< generated tokens count from 0
    places_late,        ///< those of generated tokens are one too high
    places_of_longest,  ///< generated tokens have the places behind the longest prompt
    places_go_on,       ///< from one prompt to the next
    rows_move_up,       ///< row i of a pass reads the pages of sequence i
    one_cache,          ///< all sequences' tokens lie in one row of pages
    first_rows,         ///< logits of the first row of a prompt
    last_row,           ///< all sequences get the token of the pass's last row
    prompt_again,       ///< the prompt's last token goes in, not the generated one
    no_factor,          ///< scores are not divided by the root of the width
    other_keys,         ///< heads of queries share keys with those a / g apart

    // On several ranks:
    heads_not_summed,    ///< attention's terms are not added up over ranks
    columns_not_summed,  ///< the MLP's are not
    nothing_summed,
    x_summed,           ///< x is added before the sum, so that it counts on each rank
    keys_of_first_rank  ///< all ranks have the keys of the first one's heads
};

/// Returns what follows each prompt, on each rank.
using TokensOfRanks = std::vector<std::vector<Tokens>>;
/// Places of the cache in which nothing was stored have `unstored`.
TokensOfRanks generated(const HostGpt& gpt, const GenerationCase& of,
                        Mistake mistake = Mistake::none,
                        double unstored = std::numeric_limits<double>::quiet_NaN());

}  // namespace lockstep::lessons::decode
