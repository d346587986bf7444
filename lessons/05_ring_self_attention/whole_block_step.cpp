#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/core/philox.hpp"
#include "src/nn/layer_norm.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/mlp.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kChanged = 2;  ///< the token that is changed
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kHeads = 2;

/// Tokens whose rows differ in any bit.
std::int64_t changed_tokens(const HostTensor& a, const HostTensor& b) {
    std::int64_t changed = 0;
    for (std::int64_t token = 0; token < a.shape()[0]; ++token)
        changed += a.rows(token, 1) == b.rows(token, 1) ? 0 : 1;
    return changed;
}

using MakeLayer =
    std::function<std::unique_ptr<Module>(const ParameterInit&)>;

/// In how many tokens the layer's output changes where one token of its
/// input does.
std::int64_t reach(const LessonOptions& options, std::int64_t columns,
                   const MakeLayer& make) {
    HostTensor x({kTokens, 1, columns}, options.dtype);
    const RandomStream stream(options.seed, "reach/x");
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    HostTensor other = x;
    for (std::int64_t i = 0; i < columns; ++i)
        other.set(kChanged * columns + i, -x.at(kChanged * columns + i));
    const RunReport report = make_cluster(options, 1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto layer =
            make({device, options.dtype, options.seed, "layer"});
        Saved before, after;
        rank.keep("before", layer->forward(device.upload(x), before));
        rank.keep("after", layer->forward(device.upload(other), after));
    });
    const auto& kept = report.ranks.front().kept;
    return changed_tokens(kept.at("before"), kept.at("after"));
}

}  // namespace

void RingLesson::whole_block(Page& page) {
    page.text(fmt::format(
        "A long sequence fills a device with activations, whatever is "
        "done about weights. So share out the tokens: each of N devices "
        "gets s/N of the s tokens of a sequence, and all weights. What of "
        "a transformer block still works, if a device sees its own tokens "
        "alone? Change one token of {}, number {} counted from 0, and see "
        "which tokens of each layer's output change.",
        kTokens, kChanged));
    page.predict(
        "Attention is causal: a token sees those up to itself. In how "
        "many tokens of its output does the change show?",
        kTokens - kChanged, "tokens",
        fmt::format("tokens {} to {}: {} - {}", kChanged, kTokens - 1,
                    kTokens, kChanged));
    if (!has_numbers()) {
        page.text(
            "(This run computes shapes only: there is nothing to show.)");
        return;
    }
    show_reach(page);
    page.text(
        "All else looks at one token at a time: to it, sharing out a "
        "sequence is no more than sharing out a batch, which is data "
        "parallelism. Attention alone needs keys and values of tokens "
        "that lie elsewhere, and how it gets them is all that this lesson "
        "is about. (\"Sequence parallelism\" is said of three things. In "
        "the lesson before last, Megatron's: tokens are shared out "
        "between tensor-parallel regions, and gathered for attention. "
        "Here Ring Self-Attention, and what came after it, by now mostly "
        "called context parallelism.)");
}

void RingLesson::show_reach(Page& page) {
    Table table{{"layer", "tokens that change"}, {}};
    std::vector<Check> checks;
    const auto look = [&](const char* name, std::int64_t columns,
                          std::int64_t expected, const MakeLayer& make) {
        const std::int64_t changed = reach(options(), columns, make);
        table.rows.push_back({name, std::to_string(changed)});
        checks.push_back(Check::equal(
            fmt::format("tokens that change behind {}", name),
            static_cast<double>(changed), static_cast<double>(expected)));
    };
    look("layer norm", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<LayerNorm>(init, kHidden);
    });
    look("a linear layer", kHidden, 1, [](const ParameterInit& init) {
        return std::make_unique<Linear>(init, kHidden, 3 * kHidden);
    });
    look("the MLP", kHidden, 1, [](const ParameterInit& init) {
        return make_mlp(init, kHidden, 4 * kHidden);
    });
    look("attention", 3 * kHidden, kTokens - kChanged,
         [](const ParameterInit& init) {
             return std::make_unique<CoreAttention>(
                 init.device, AttentionSizes{kHeads, true});
         });
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace lockstep::lessons
