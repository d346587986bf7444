#include "lessons/tools/model_page.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/tools/mesh_page.hpp"
#include "src/core/units.hpp"
#include "src/report/describe.hpp"
#include "src/text/numbers.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kStages = "pp";  // divides the layers among stages

std::string without_prefix(const std::string& name) {
    constexpr std::string_view kPrefix = "transformer.";
    return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

/// Returns "h.0–3.mlp.c_fc.weight": the parameter with that name in all those layers.
std::string name_in_layers(const std::string& name, const std::vector<int>& layers) {
    const LayerName parsed = layer_name(name);
    if (parsed.layer < 0) return without_prefix(name);
    return fmt::format("h.{}.{}", ranges_text(layers), parsed.rest);
}

/// Returns the ranks' places along the axis of stages.
std::set<int> stages_of(const MeshShape& shape, const std::vector<int>& ranks) {
    std::set<int> stages;
    for (const int rank : ranks)
        stages.insert(shape.has(kStages) ? shape.coordinate(rank, kStages) : 0);
    return stages;
}

std::string sentence_of(const ModelOnMesh& model) {
    const MeshOptions& options = model.options;
    std::string spread = fmt::format("schedule {}", options.schedule);
    if (options.chunks > 1) spread += fmt::format(", {} chunks a stage", options.chunks);
    if (options.sequence) spread += ", sequence parallelism";
    if (options.zero > 0) spread += fmt::format(", ZeRO stage {}", options.zero);
    return fmt::format(
        "The model: {} numbers in {} parameters, in bf16; {}. Names of parameters are "
        "without \"transformer.\".",
        count_text(model.sizes.parameters()),
        count_text(static_cast<std::int64_t>(model.held.size())), spread);
}

/// Shows the parameters on each stage.
Table stage_table(const MeshShape& shape, const ModelOnMesh& model) {
    std::map<int, std::vector<std::string>> names;
    for (const SpreadParameter& parameter : model.held) {
        std::set<int> stages;
        for (const HeldPart& held : parameter.parts)
            stages.merge(stages_of(shape, held.ranks));
        for (const int stage : stages)
            names[stage].push_back(parameter.name);
    }
    Table table{{"stage", "holds"}, {}};
    for (const auto& [stage, parameters] : names)
        table.rows.push_back({fmt::format("{} {}", kStages, stage),
                              fmt::format("{}", fmt::join(pieces_of(parameters), ", "))});
    return table;
}

/// A part in words, and the places of the ranks that hold it.
using PartWords = std::pair<std::string, std::string>;

/// Parameters of several layers that are divided in the same way.
struct Alike {
    std::string name;  ///< name of the first parameter
    std::string whole;
    std::vector<PartWords> parts;
    std::vector<int> layers;
};

/// Returns the ranks' places in their stage, if each stage has the same number of them;
/// otherwise their places in the mesh.
std::string where_within(const MeshShape& shape, const std::vector<int>& ranks) {
    const std::set<int> stages = stages_of(shape, ranks);
    std::vector<int> of_one;
    for (const int rank : ranks)
        if (shape.coordinate(rank, kStages) == *stages.begin()) of_one.push_back(rank);
    if (of_one.size() * stages.size() != ranks.size()) return where_text(shape, ranks);
    // Compute places as if the mesh had only that stage.
    std::vector<MeshShape::Axis> axes;
    for (const MeshShape::Axis& axis : shape.axes())
        if (axis.name != kStages) axes.push_back(axis);
    const MeshShape stage(axes);
    std::vector<int> within;
    within.reserve(of_one.size());
    for (const int rank : of_one) {
        int place = 0;
        for (const MeshShape::Axis& axis : axes)
            place = place * axis.size + shape.coordinate(rank, axis.name);
        within.push_back(place);
    }
    std::ranges::sort(within);
    return where_text(stage, within);
}

std::vector<PartWords> part_words(const MeshShape& shape,
                                  const SpreadParameter& parameter) {
    bool by_stage = layer_name(parameter.name).layer >= 0 && shape.has(kStages) &&
                    shape.size(kStages) > 1 && !parameter.parts.empty();
    if (by_stage) {
        const std::set<int> stages = stages_of(shape, parameter.parts.front().ranks);
        by_stage = std::ranges::all_of(parameter.parts, [&](const HeldPart& held) {
            return stages_of(shape, held.ranks) == stages;
        });
    }
    std::vector<PartWords> words;
    words.reserve(parameter.parts.size());
    for (const HeldPart& held : parameter.parts)
        words.emplace_back(text_of(held.part), by_stage ? where_within(shape, held.ranks)
                                                        : where_text(shape, held.ranks));
    return words;
}

std::vector<Alike> alike(const MeshShape& shape,
                         const std::vector<SpreadParameter>& parameters) {
    std::vector<Alike> all;
    for (const SpreadParameter& parameter : parameters) {
        const LayerName name = layer_name(parameter.name);
        Alike one{
            parameter.name, parameter.whole.text(), part_words(shape, parameter), {}};
        const auto same = std::ranges::find_if(all, [&](const Alike& other) {
            const LayerName others = layer_name(other.name);
            return name.layer >= 0 && others.layer >= 0 && others.rest == name.rest &&
                   other.whole == one.whole && other.parts == one.parts;
        });
        Alike& found = same == all.end() ? all.emplace_back(std::move(one)) : *same;
        if (name.layer >= 0) found.layers.push_back(name.layer);
    }
    return all;
}

Table part_table(const MeshShape& shape, const std::vector<SpreadParameter>& parameters) {
    constexpr std::size_t kMostShown = 8;
    constexpr std::size_t kFirst = 3;
    Table table{{"parameter", "whole", "part", "where"}, {}};
    for (const Alike& each : alike(shape, parameters)) {
        const std::size_t count = each.parts.size();
        for (std::size_t i = 0; i < count; ++i) {
            if (count > kMostShown && i == kFirst) {
                table.rows.push_back(
                    {"", "", fmt::format("… {} more", count - kFirst - 1), "…"});
                i = count - 1;
            }
            table.rows.push_back({i == 0 ? name_in_layers(each.name, each.layers) : "",
                                  i == 0 ? each.whole : "", each.parts[i].first,
                                  each.parts[i].second});
        }
    }
    return table;
}

/// Shows what ranks hold; ranks that hold the same amounts share a row.
Table holding_table(const MeshShape& shape, const ModelOnMesh& model) {
    constexpr std::size_t kMostShown = 12;
    std::vector<std::pair<RankHolding, std::vector<int>>> groups;
    for (std::size_t rank = 0; rank < model.ranks.size(); ++rank) {
        const RankHolding& holding = model.ranks[rank];
        auto group = std::ranges::find_if(
            groups, [&](const auto& each) { return each.first == holding; });
        if (group == groups.end()) group = groups.insert(group, {holding, {}});
        group->second.push_back(static_cast<int>(rank));
    }
    const bool shares_updates = !model.updated.empty();
    Table table{{"ranks", "numbers", "weights", "gradients", "AdamW's state", "together"},
                {}};
    if (shares_updates) table.head.insert(table.head.begin() + 2, "updates");
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (groups.size() > kMostShown && i + 2 == kMostShown) {
            table.rows.emplace_back(table.head.size(), "…");
            i = groups.size() - 1;
        }
        const auto& [holding, ranks] = groups[i];
        table.rows.push_back(
            {where_text(shape, ranks), count_text(holding.numbers),
             bytes_text(holding.value_bytes), bytes_text(holding.gradient_bytes),
             bytes_text(holding.optimizer_bytes), bytes_text(holding.bytes())});
        if (shares_updates)
            table.rows.back().insert(table.rows.back().begin() + 2,
                                     count_text(holding.updated));
    }
    return table;
}

/// Shows everything that a rank holds of these parameters. Layers that are divided in the
/// same way share a row.
Table table_of_rank(const std::vector<SpreadParameter>& parameters, int rank,
                    std::int64_t bytes_each) {
    struct Row {
        std::string name;
        std::string whole;
        std::string part;
        std::vector<int> layers;
        std::int64_t numbers = 0;
        std::int64_t bytes = 0;
    };
    std::vector<Row> rows;
    Row total{"together", "", "", {}, 0, 0};
    for (const SpreadParameter& parameter : parameters) {
        const Part* part = parameter.part_on(rank);
        if (part == nullptr) continue;
        const LayerName name = layer_name(parameter.name);
        const std::string words = text_of(*part);
        auto row = std::ranges::find_if(rows, [&](const Row& other) {
            return name.layer >= 0 && layer_name(other.name).layer >= 0 &&
                   layer_name(other.name).rest == name.rest && other.part == words &&
                   other.whole == parameter.whole.text();
        });
        if (row == rows.end())
            row = rows.insert(row, {parameter.name, parameter.whole.text(), words, {}});
        if (name.layer >= 0) row->layers.push_back(name.layer);
        for (Row* sum : {&*row, &total}) {
            sum->numbers += elements_of(*part);
            sum->bytes += bytes_each * part->shape.elements();
        }
    }
    Table table{{"parameter", "whole", "its part", "numbers", "bytes"}, {}};
    for (const Row& row : rows)
        table.rows.push_back({name_in_layers(row.name, row.layers), row.whole, row.part,
                              count_text(row.numbers), count_text(row.bytes)});
    table.rows.push_back(
        {total.name, "", "", count_text(total.numbers), count_text(total.bytes)});
    return table;
}

void say_of_rank(const ModelOnMesh& model, int rank, Document& page) {
    const auto say = [&](const std::string& sentence) {
        page.push_back({Paragraph{words_of(sentence)}});
    };
    const RankHolding& holding = model.ranks[static_cast<std::size_t>(rank)];
    say(fmt::format("Between two steps, rank {} holds {} of the model's numbers, in {}:",
                    rank, count_text(holding.numbers), bytes_text(holding.value_bytes)));
    page.push_back({table_of(table_of_rank(model.held, rank, bytes_of(DType::bf16)))});
    if (!model.updated.empty()) {
        say("It updates the following numbers; their optimizer state is a master and two "
            "moments, each in f32:");
        page.push_back(
            {table_of(table_of_rank(model.updated, rank, 3 * bytes_of(DType::f32)))});
    }
    say(
        fmt::format("Weights {}, gradients {}, AdamW's state, with a master in f32, {}: "
                    "together {}, without activations.",
                    bytes_text(holding.value_bytes), bytes_text(holding.gradient_bytes),
                    bytes_text(holding.optimizer_bytes), bytes_text(holding.bytes())));
}

}  // namespace

Document model_page(const MeshShape& shape, const ModelOnMesh& model,
                    std::optional<int> rank) {
    Document page;
    const auto say = [&](const std::string& sentence) {
        page.push_back({Paragraph{words_of(sentence)}});
    };
    say(sentence_of(model));
    if (rank) {
        say_of_rank(model, *rank, page);
        return page;
    }
    if (shape.has(kStages) && shape.size(kStages) > 1)
        page.push_back({table_of(stage_table(shape, model))});
    page.push_back({table_of(part_table(shape, model.held))});
    if (shape.has(kStages) && shape.size(kStages) > 1)
        say("A layer's parameters are on the layer's stage; the table shows the place "
            "within the stage.");
    if (!model.updated.empty())
        say(
            fmt::format("ZeRO stage {} shards what ranks update, by elements of buckets; "
                        "--rank R shows the shard of one rank.",
                        model.options.zero));
    page.push_back({table_of(holding_table(shape, model))});
    say("These are held between two steps, without activations: weights and gradients "
        "in bf16; AdamW's state, with a master of each weight, in f32.");
    return page;
}

namespace {

Json json_of(const Shape& shape) {
    Json extents = Json::array();
    for (int i = 0; i < shape.dimensions(); ++i)
        extents.push_back(shape[i]);
    return extents;
}

Json json_of(const HeldPart& held) {
    Json elements = Json::array();
    for (const Stretches& each : stretches_of(held.part))
        elements.push_back({{"from", each.from},
                            {"count", each.count},
                            {"times", each.times},
                            {"apart", each.apart}});
    return {{"words", text_of(held.part)},
            {"shape", json_of(held.part.shape)},
            {"numbers", elements_of(held.part)},
            {"elements", std::move(elements)},
            {"ranks", Json(held.ranks)}};
}

Json json_of(const std::vector<SpreadParameter>& parameters) {
    Json all = Json::array();
    for (const SpreadParameter& parameter : parameters) {
        Json parts = Json::array();
        for (const HeldPart& held : parameter.parts)
            parts.push_back(json_of(held));
        all.push_back({{"name", parameter.name},
                       {"whole", json_of(parameter.whole)},
                       {"parts", std::move(parts)}});
    }
    return all;
}

}  // namespace

Json model_json(const ModelOnMesh& model) {
    const MeshOptions& options = model.options;
    Json ranks = Json::array();
    for (const RankHolding& holding : model.ranks)
        ranks.push_back({{"numbers", holding.numbers},
                         {"updated", holding.updated},
                         {"weight_bytes", holding.value_bytes},
                         {"gradient_bytes", holding.gradient_bytes},
                         {"optimizer_bytes", holding.optimizer_bytes}});
    return {{"sizes", describe(model.sizes)},
            {"spread",
             {{"schedule", options.schedule},
              {"chunks", options.chunks},
              {"sequence", options.sequence},
              {"zero", options.zero}}},
            {"parameters", json_of(model.held)},
            {"updated", json_of(model.updated.empty() ? model.held : model.updated)},
            {"ranks", std::move(ranks)}};
}

}  // namespace lockstep::lessons
