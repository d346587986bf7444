#include "lessons/tools/model_on_mesh.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kModelContext = 4096;  // of published models; adds no parameters

using Published = std::pair<const char*, GptSizes (*)(std::int64_t context)>;
constexpr Published kModels[] = {{"llama2-13b", llama2_13b},
                                 {"mixtral-8x7b", mixtral_8x7b},
                                 {"deepseek-v3", deepseek_v3}};

}  // namespace

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& [name, sizes] : kModels)
        names.emplace_back(name);
    return names;
}

const std::vector<programs::Setting>& model_settings() {
    using programs::Choice;
    using programs::Whole;
    // With these limits a model has at most 2^62 bytes, which 64 bits can count.
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
    constexpr std::int64_t kMostColumns = std::int64_t{1} << 16;
    constexpr std::int64_t kMostInner = std::int64_t{1} << 18;
    static const std::vector<programs::Setting> settings{
        {"layers", "blocks of attention and an MLP", Whole{1, 1000, 4}},
        {"hidden", "columns between layers", Whole{1, kMostColumns, 64}},
        {"heads", "heads of attention, which divide the columns", Whole{1, 4096, 4}},
        {"kv-heads", "heads of keys and values", Whole{1, 4096}, "all heads"},
        {"inner", "columns inside of an MLP", Whole{1, kMostInner}, "4 times hidden"},
        {"vocabulary", "tokens that there are", Whole{1, kMostTokens, 65}},
        {"context", "tokens of the longest sequence", Whole{1, kMostTokens, 32}},
        {"tied", "1: the output head shares the embedding table", Whole{0, 1, 0}},
        {"style",
         "gpt2: layer norms, GELU, biases, learnt positions; llama: RMS norms, "
         "SwiGLU, rotary positions",
         Choice{{"gpt2", "llama"}, "gpt2"}},
        {"experts", "experts in the place of each MLP; 0: none", Whole{0, 4096, 0}},
        {"expert-inner", "columns inside of an expert", Whole{1, kMostInner}, "inner"},
        {"shared", "columns of the shared expert, which all tokens use",
         Whole{0, kMostInner, 0}},
        {"dense", "number of first blocks that have an MLP instead of experts",
         Whole{0, 1000, 0}},
    };
    return settings;
}

namespace {

GptSizes sizes_of(const programs::Settings& values) {
    GptSizes sizes;
    sizes.layers = values.integer("layers");
    sizes.vocabulary = values.integer("vocabulary");
    sizes.context = values.integer("context");
    sizes.tied = values.integer("tied") == 1;
    sizes.dense_blocks = values.integer("dense");
    BlockSizes& block = sizes.block;
    block.hidden = values.integer("hidden");
    block.heads = values.integer("heads");
    block.kv_heads = values.integer("kv-heads", 0);
    block.inner = values.integer("inner", 0);
    if (values.word("style") == "llama") {
        block.norm = NormKind::rms_norm;
        block.mlp = MlpKind::swiglu;
        block.rotary_base = 10'000;
        block.bias = false;
    }
    block.experts.count = values.integer("experts");
    require(sizes.dense_blocks < sizes.layers || block.experts.count == 0,
            "--model: dense={} leaves none of the {} layers for experts; fewer are "
            "expected",
            sizes.dense_blocks, sizes.layers);
    block.experts.inner = values.integer("expert-inner", 0);
    block.experts.shared = values.integer("shared");
    // The number of chosen experts does not change the parameters, but there must be at
    // least that number of experts.
    block.experts.gate.chosen = std::min<std::int64_t>(
        block.experts.gate.chosen, std::max<std::int64_t>(block.experts.count, 1));
    return sizes;
}

}  // namespace

GptSizes read_model(const std::string& option, const std::string& value) {
    for (const auto& [name, sizes] : kModels)
        if (value == name) return sizes(kModelContext);
    const std::vector<std::string> names = model_names();
    std::map<std::string, std::string> given;
    for (const std::string& word : split_at_commas(value)) {
        const std::size_t sign = word.find('=');
        require(sign != word.npos && sign > 0, [&] {
            if (value.find('=') != value.npos)
                return fmt::format(
                    "{} {}: '{}' is no KEY=VALUE; sizes are expected with commas between",
                    option, printable(value), printable(word));
            return fmt::format(
                "{} {}: {} is expected, or sizes KEY=VALUE with commas between{}", option,
                printable(value), either(names), did_you_mean(value, names));
        });
        const std::string key = word.substr(0, sign);
        const bool fresh = given.emplace(key, word.substr(sign + 1)).second;
        require(fresh, "{} {}: {} is given twice", option, printable(value),
                printable(key));
    }
    GptSizes sizes = sizes_of(programs::Settings(model_settings(), given, option));
    for (const char* size : {"expert-inner", "shared", "dense"})
        require(sizes.block.experts.count > 0 || !given.contains(size),
                "{} {}: {} is a size of models with experts; experts is expected, too",
                option, printable(value), size);
    return sizes;
}

const Part* SpreadParameter::part_on(int rank) const {
    for (const HeldPart& held : parts)
        if (std::ranges::binary_search(held.ranks, rank)) return &held.part;
    return nullptr;
}

LayerName layer_name(const std::string& parameter) {
    constexpr std::string_view kLayers = "transformer.h.";
    if (parameter.starts_with(kLayers)) {
        std::string_view rest = std::string_view(parameter).substr(kLayers.size());
        int layer = 0;
        if (take_digits(rest, layer) && rest.starts_with('.'))
            return {layer, std::string(rest.substr(1))};
    }
    return {-1, parameter};
}

std::vector<std::string> pieces_of(const std::vector<std::string>& parameters) {
    std::vector<std::string> before, behind;
    std::set<int> layers;
    for (const std::string& parameter : parameters) {
        const auto [layer, rest] = layer_name(parameter);
        if (layer >= 0) {
            layers.insert(layer);
            continue;
        }
        // "transformer.wte.weight" is wte, "lm_head.weight" is lm_head.
        std::string name = rest.substr(0, rest.rfind('.'));
        name.erase(0, name.rfind('.') + 1);
        std::vector<std::string>& list = layers.empty() ? before : behind;
        if (std::ranges::find(list, name) == list.end()) list.push_back(name);
    }
    std::vector<std::string> pieces;
    if (!before.empty()) pieces.push_back(fmt::format("{}", fmt::join(before, ", ")));
    if (!layers.empty())
        pieces.push_back(fmt::format("layer{} {}", layers.size() == 1 ? "" : "s",
                                     ranges_text({layers.begin(), layers.end()})));
    if (!behind.empty()) pieces.push_back(fmt::format("{}", fmt::join(behind, ", ")));
    return pieces;
}

namespace {

/// Gives each part of a parameter a number; equal parts have the same number. No lock is
/// needed, because ranks that compute only shapes run one after another.
class PartNumbers {
  public:
    int number_of(const Parameter& parameter) {
        const auto [found, fresh] = numbers_.emplace(key_of(parameter), numbers_.size());
        if (fresh) all_.emplace_back(parameter.name(), parameter.part());
        return static_cast<int>(found->second);
    }
    const std::string& name(int number) const { return at(number).first; }
    const Part& part(int number) const { return at(number).second; }

  private:
    static std::string key_of(const Parameter& parameter) {
        const Part& part = parameter.part();
        std::string key =
            fmt::format("{} {} {} {} {}", parameter.name(), part.whole.text(),
                        part.shape.text(), part.column, part.flat);
        for (const Part::Rows& rows : part.rows)
            fmt::format_to(std::back_inserter(key), " {} {} {}", rows.at, rows.from,
                           rows.count);
        return key;
    }
    const std::pair<std::string, Part>& at(int number) const {
        return all_[static_cast<std::size_t>(number)];
    }

    std::unordered_map<std::string, std::size_t> numbers_;
    std::vector<std::pair<std::string, Part>> all_;
};

/// For each rank, the parts that it has, by their PartNumbers.
using PartsOfRanks = std::vector<std::vector<int>>;

/// Returns the parameters' names, as on one device.
std::vector<std::string> names_in(const GptSizes& sizes) {
    std::vector<std::string> names;
    sim::ClusterOptions alone;
    alone.numbers = false;
    sim::make_cluster(alone)->run([&](Rank& rank) {
        const auto gpt = make_gpt({rank.device(), DType::bf16, 1, ""}, sizes);
        for (const Parameter* parameter : gpt->parameters())
            names.push_back(parameter->name());
    });
    return names;
}

/// Returns the parameters in the order of `names`.
std::vector<SpreadParameter> spread_of(const PartsOfRanks& ranks,
                                       const PartNumbers& parts,
                                       const std::vector<std::string>& names) {
    std::vector<SpreadParameter> all(names.size());
    std::unordered_map<std::string, std::size_t> place;
    for (std::size_t i = 0; i < names.size(); ++i) {
        all[i].name = names[i];
        place[names[i]] = i;
    }
    std::unordered_map<int, std::size_t> part_place;  // in its parameter's list
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (const int number : ranks[rank]) {
            SpreadParameter& parameter = all[place.at(parts.name(number))];
            parameter.whole = parts.part(number).whole;
            std::vector<HeldPart>& held = parameter.parts;
            const auto [known, is_new] = part_place.emplace(number, held.size());
            if (is_new) held.push_back({parts.part(number), {}});
            held[known->second].ranks.push_back(static_cast<int>(rank));
        }
    return all;
}

/// Returns the parameters that are on the rank between steps. If a parameter has no value
/// there, returns its shard instead.
std::vector<Parameter*> held_between_steps(const GptOnMesh& gpt,
                                           const std::vector<Parameter*>& shards) {
    std::vector<Parameter*> held;
    std::set<std::string> absent;
    for (Parameter* parameter : gpt.parameters())
        if (parameter->value)
            held.push_back(parameter);
        else
            absent.insert(parameter->name());
    for (Parameter* shard : shards)
        if (absent.contains(shard->name())) held.push_back(shard);
    return held;
}

std::int64_t elements_of_all(const std::vector<Parameter*>& parameters) {
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += elements_of(parameter->part());
    return elements;
}

/// Limits the sum of the ranks' numbers of parameters, because each rank makes its own
/// parameters.
void require_room(const MeshPlan& plan, const std::vector<std::string>& names) {
    constexpr std::int64_t kMost = 4'000'000;
    const auto of_experts = std::ranges::count_if(names, [](const std::string& name) {
        return name.find(".experts.") != name.npos;
    });
    const std::int64_t on_a_rank =
        (std::ssize(names) - of_experts + of_experts / plan.size("ep")) / plan.size("pp");
    const std::int64_t all = on_a_rank * plan.shape().ranks();
    require(all <= kMost,
            "{} ranks with about {} parameters each exceed the limit of {}; use fewer "
            "ranks or layers",
            plan.shape().ranks(), on_a_rank, kMost);
}

}  // namespace

ModelOnMesh model_on_mesh(const GptSizes& sizes, const MeshOptions& options) {
    const MeshPlan plan(sizes, options);
    const TokenDeal tokens{options.order, plan.size("cp"), 0};
    tokens.share_of(sizes.context, "the model");
    const std::vector<std::string> names = names_in(sizes);
    require_room(plan, names);
    sim::ClusterOptions cluster;
    cluster.ranks = plan.shape().ranks();
    cluster.numbers = false;
    cluster.check = sim::CheckLevel::cheap;
    ModelOnMesh model{sizes, options, {}, {}, {}};
    const auto ranks = static_cast<std::size_t>(cluster.ranks);
    model.ranks.resize(ranks);
    PartNumbers numbers;
    PartsOfRanks held(ranks), updated(ranks);
    const RunReport report = sim::make_cluster(cluster)->run([&](Rank& rank) {
        GptOnMesh gpt(rank, plan, DType::bf16, 1);
        const std::vector<Parameter*> shards = gpt.sync().shards();
        const auto optimizer = make_optimizer<AdamW>(shards, AdamWOptions{});
        const std::vector<Parameter*> own = held_between_steps(gpt, shards);
        const auto index = static_cast<std::size_t>(rank.index());
        for (const Parameter* parameter : own)
            held[index].push_back(numbers.number_of(*parameter));
        for (const Parameter* parameter : shards)
            updated[index].push_back(numbers.number_of(*parameter));
        model.ranks[index].numbers = elements_of_all(own);
        model.ranks[index].updated = elements_of_all(shards);
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const MemoryReport& memory = report.ranks[rank].memory;
        RankHolding& holding = model.ranks[rank];
        holding.value_bytes = memory.peak_of(MemoryCategory::parameters);
        holding.gradient_bytes = memory.peak_of(MemoryCategory::gradients);
        holding.optimizer_bytes = memory.peak_of(MemoryCategory::optimizer);
    }
    model.held = spread_of(held, numbers, names);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::ranges::sort(held[rank]);
        std::ranges::sort(updated[rank]);
    }
    if (held != updated) model.updated = spread_of(updated, numbers, names);
    return model;
}

std::vector<std::vector<std::string>> ModelOnMesh::labels() const {
    std::vector<std::vector<std::string>> names(ranks.size());
    for (const SpreadParameter& parameter : held)
        for (const HeldPart& part : parameter.parts)
            for (const int rank : part.ranks)
                names[static_cast<std::size_t>(rank)].push_back(parameter.name);
    std::vector<std::vector<std::string>> lines(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        lines[rank] = pieces_of(names[rank]);
        lines[rank].push_back(count_text(ranks[rank].numbers) + " numbers");
    }
    return lines;
}

}  // namespace lockstep::lessons
