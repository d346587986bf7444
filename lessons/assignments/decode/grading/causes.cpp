#include "lessons/assignments/decode/grading/causes.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::lessons::decode {

namespace {

struct Cause {
    Mistake mistake;
    const char* text;
};

constexpr Cause kCauses[] = {
    {Mistake::own_keys_late,
     "the keys and values of a pass's rows are not there when attention reads: a token "
     "sees its own, so they are stored before (what was never stored is NaN here, and "
     "the first NaN counts as the largest logit)"},
    {Mistake::places_again,
     "places begin at 0 again in each pass: the place of a token is how many are before "
     "it in its sequence"},
    {Mistake::places_of_output,
     "the places of generated tokens begin at 0 again: they go on behind the prompt"},
    {Mistake::places_late,
     "the places of generated tokens are one too high: a token's place is how many are "
     "before it"},
    {Mistake::places_of_longest,
     "generated tokens have places behind the longest prompt: each goes on behind its "
     "own"},
    {Mistake::places_go_on,
     "places go on from one prompt to the next: each sequence's begin at 0"},
    {Mistake::rows_move_up,
     "rows of another sequence are read: once a sequence has ended, row i of a pass is "
     "not sequence i, and each needs its own pages"},
    {Mistake::one_cache,
     "rows of another sequence are read: all tokens lie behind each other, and each sees "
     "all that were stored before it"},
    {Mistake::first_rows,
     "what follows a prompt is chosen by the logits of its first row; those of its last "
     "row say it"},
    {Mistake::last_row,
     "all sequences get the token of the pass's last row; each has a last row of its "
     "own"},
    {Mistake::prompt_again,
     "the last token of the prompt goes in again and again: the one that was generated "
     "last does"},
    {Mistake::no_factor,
     "scores are not divided by the root of the width (given::score_factor)"},
    {Mistake::other_keys,
     "head i of the queries has the keys of head i % g: heads that share keys are side "
     "by side, i / (a / g)"},
    {Mistake::heads_not_summed,
     "each rank adds what its own heads found, and the MLP's sum is right: an all-reduce "
     "is missing behind attention"},
    {Mistake::columns_not_summed,
     "each rank adds what its own columns of the MLP made, and attention's sum is right: "
     "an all-reduce is missing behind the MLP"},
    {Mistake::nothing_summed,
     "each rank goes on with its own heads and columns alone: what all ranks' make is a "
     "sum, an all-reduce behind attention and one behind the MLP"},
    {Mistake::x_summed,
     "x is in it once for each rank: the terms are summed over the ranks first, and x is "
     "added behind that"},
    {Mistake::keys_of_first_rank,
     "all ranks have the keys and values of the first rank's heads: rank r's begin at "
     "head r g / t"},
};

/// A cause, and the tokens that are left by its mistake.
struct Consequence {
    const Cause* cause;
    TokensOfRanks left;
};

/// Returns what each mistake that can be made in this case leaves.
std::vector<Consequence> consequences(const GenerationCase& of, const HostGpt& gpt) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    std::vector<Consequence> all;
    for (const Cause& cause : kCauses)
        if (cause.mistake < Mistake::heads_not_summed || of.ranks > 1)
            for (const double unstored : {kNaN, 0.0})
                all.push_back({&cause, generated(gpt, of, cause.mistake, unstored)});
    return all;
}

/// Returns the seed of with_telling_weights.
std::int64_t telling_seed(GenerationCase of) {
    constexpr int kTries = 32;
    const std::int64_t drawn = of.seed;
    for (int i = 0; i < kTries; ++i, ++of.seed)
        if (tells_mistakes_apart(of)) return of.seed;
    return drawn;
}

}  // namespace

bool tells_mistakes_apart(const GenerationCase& of) {
    const HostGpt gpt = host_gpt(of);
    std::map<TokensOfRanks, const Cause*> found{{generated(gpt, of), nullptr}};
    return std::ranges::all_of(consequences(of, gpt), [&](const Consequence& each) {
        const Cause* other = found.try_emplace(each.left, each.cause).first->second;
        return other == nullptr || other == each.cause;
    });
}

GenerationCase with_telling_weights(GenerationCase of) {
    // Each criterion asks for the cases of those before it again.
    static std::map<std::pair<int, Numbers>, std::int64_t> found;
    const auto [place, is_new] = found.try_emplace({of.ranks, numbers_of(of)}, 0);
    if (is_new) place->second = telling_seed(of);
    of.seed = place->second;
    return of;
}

std::string cause_of(const GenerationCase& of, const HostGpt& gpt,
                     const TokensOfRanks& expected, const TokensOfRanks& left) {
    for (const std::vector<Tokens>& of_rank : left)
        if (!std::ranges::equal(of_rank, expected[0], {}, &Tokens::size, &Tokens::size))
            return "each prompt gets as many tokens as it asks for: Prompt::output";
    for (const auto& [cause, of_mistake] : consequences(of, gpt))
        if (left == of_mistake) return cause->text;
    for (const std::vector<Tokens>& of_rank : left)
        if (of_rank != left[0])
            return "ranks do not generate the same tokens: each must have whole sums "
                   "before it goes on";
    const auto first = [](const Tokens& tokens) { return tokens.at(0); };
    if (std::ranges::equal(left[0], expected[0], {}, first, first))
        return "the first token of each is right, and so is the pass of the prompts; "
               "what is wrong is in those that follow: the place, the pages or the token "
               "that goes in";
    return "";
}

}  // namespace lockstep::lessons::decode
