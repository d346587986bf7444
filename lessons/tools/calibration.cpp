#include "lessons/tools/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"
#include "src/text/table.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kMostPlaces = 1 << 30;
constexpr std::size_t kMostMembers = 200'000;  ///< of all groups
constexpr int kMostLayerRanks = 256;           ///< of all layers

/// A measurement, and for a collective the ranks of its group: equally many on each node.
struct PlacedRow {
    Measurement measured;
    std::vector<int> members;
};

PlacedRow placed(const Measurement& row, const ClusterSpec& spec) {
    PlacedRow result{row, {}};
    const auto* it = std::get_if<MeasuredCollective>(&row.what);
    if (it == nullptr) return result;
    const std::int64_t node = spec.devices_per_node;
    const std::int64_t nodes = it->nodes > 0 ? it->nodes : (it->ranks + node - 1) / node;
    const std::int64_t on_node = it->ranks / nodes;
    require(
        it->ranks % nodes == 0 && on_node <= node && nodes * node < kMostPlaces,
        "{}: they cannot be spread evenly over {} nodes of {}, which have {} devices; "
        "--with nodes=N or another --cluster is expected",
        text_of(row), nodes, printable(spec.name), node);
    for (std::int64_t rank = 0; rank < it->ranks; ++rank)
        result.members.push_back(
            static_cast<int>(rank / on_node * node + rank % on_node));
    return result;
}

double seconds_of(const MeasuredProduct& it, const ClusterSpec& spec) {
    const std::int64_t elements =
        it.rows * it.inner + it.inner * it.columns + it.rows * it.columns;
    return seconds(operation_time(spec, 2 * it.rows * it.inner * it.columns,
                                  elements * bytes_of(it.dtype), it.dtype,
                                  std::min({it.rows, it.inner, it.columns})));
}

double seconds_of(const MeasuredTraffic& it, const ClusterSpec& spec) {
    return seconds(operation_time(spec, 0, it.bytes, DType::bf16));
}

/// When a layer's forward and its backward have ended.
struct LayerTimes {
    double forward = 0;
    double backward = 0;
};

LayerTimes run_layer(const MeasuredLayer& it, const ClusterSpec& spec) {
    using Recomputed = MeshOptions::Recompute;
    sim::ClusterOptions options;
    options.ranks = it.tensor_parallel;
    options.spec = spec;
    options.spec.memory_bytes = 0;
    options.numbers = false;
    options.check = sim::CheckLevel::cheap;
    LayerTimes times;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = it.sequence_parallel
                            ? std::make_unique<SequenceParallel>(device, rank.world())
                            : std::make_unique<TensorParallel>(device, rank.world());
        GptKit kit = tensor_parallel({}, *tp);
        if (it.recompute == Recomputed::attention)
            kit = selective_recompute(std::move(kit));
        BlockSizes sizes;
        sizes.hidden = it.hidden;
        sizes.heads = it.heads;
        std::unique_ptr<Module> block =
            make_block({device, DType::bf16, 0, "h.0"}, sizes, kit);
        if (it.recompute == Recomputed::layers)
            block = std::make_unique<Recompute>(std::move(block));
        const std::int64_t shards = it.sequence_parallel ? it.tensor_parallel : 1;
        const Shape shape{it.tokens / shards, it.sequences, it.hidden};
        const Tensor x = device.empty(shape, DType::bf16);
        const Tensor dy = device.empty(shape, DType::bf16);
        Saved saved;
        const Picoseconds begin = device.now();
        (void)block->forward(x, saved);
        const Picoseconds middle = device.now();
        (void)block->backward(dy, saved);
        if (rank.index() != 0) return;
        times = {seconds(middle - begin), seconds(device.now() - middle)};
    });
    return times;
}

/// The times of measurements on a cluster. A layer's forward and backward are run
/// together.
class Times {
  public:
    explicit Times(const ClusterSpec& spec) : spec_(spec) {}

    double of(const PlacedRow& row) {
        if (const auto* it = std::get_if<MeasuredCollective>(&row.measured.what))
            return seconds(collective_time(call_of_size(it->verb, it->bytes, it->ranks),
                                           spec_, row.members));
        if (const auto* it = std::get_if<MeasuredProduct>(&row.measured.what))
            return seconds_of(*it, spec_);
        if (const auto* it = std::get_if<MeasuredTraffic>(&row.measured.what))
            return seconds_of(*it, spec_);
        return of_layer(std::get<MeasuredLayer>(row.measured.what));
    }

  private:
    double of_layer(MeasuredLayer it) {
        const bool backward = std::exchange(it.backward, false);
        if (!layer_ || !(*layer_ == it)) {
            layer_ = it;
            times_ = run_layer(it, spec_);
        }
        return backward ? times_.backward : times_.forward;
    }

    const ClusterSpec& spec_;
    std::optional<MeasuredLayer> layer_;  ///< the last one
    LayerTimes times_;
};

/// Figures of a cluster that are fitted together: all are multiplied by one factor. The
/// first of them is shown.
struct Knob {
    std::string name;
    std::function<std::vector<double*>(ClusterSpec&)> figures;

    double value(ClusterSpec spec) const { return *figures(spec).front(); }
};

Knob knob(std::string name, const std::function<double&(ClusterSpec&)>& figure) {
    return {std::move(name),
            [figure](ClusterSpec& spec) { return std::vector<double*>{&figure(spec)}; }};
}

/// The latencies of all algorithms keep their proportions, and so does the link's.
Knob latency_knob(std::string name, LinkSpec ClusterSpec::*link,
                  double CollectiveAlgorithm::*latency) {
    return {std::move(name), [link, latency](ClusterSpec& spec) {
                std::vector<double*> figures;
                for (CollectiveAlgorithm& algorithm : spec.algorithms)
                    figures.push_back(&(algorithm.*latency));
                if (link != nullptr) figures.push_back(&(spec.*link).alpha_seconds);
                return figures;
            }};
}

/// The efficiency of products of the extent of point `last`, and of smaller ones.
Knob product_knob(double extent, std::size_t last) {
    return {fmt::format("products of extent {}", number_text(extent)),
            [last](ClusterSpec& spec) {
                std::vector<double*> figures;
                for (std::size_t i = last + 1; i-- > 0;)
                    figures.push_back(&spec.product_efficiency.points[i].part);
                return figures;
            }};
}

/// Which figures the measurements depend on.
struct Kinds {
    bool operations = false;
    bool products = false;
    bool inside = false;
    bool between = false;
};

Kinds kinds_of(const std::vector<PlacedRow>& rows, const ClusterSpec& spec) {
    Kinds kinds;
    for (const auto& [measured, members] : rows) {
        if (std::holds_alternative<MeasuredCollective>(measured.what)) {
            kinds.inside |= spec.same_node(members[0], members[1]);
            kinds.between |= !spec.same_node(members.front(), members.back());
            continue;
        }
        const bool layer = std::holds_alternative<MeasuredLayer>(measured.what);
        kinds.products |= layer || std::holds_alternative<MeasuredProduct>(measured.what);
        kinds.operations |= !layer;
    }
    return kinds;
}

/// Products get an efficiency at these extents if the cluster has none.
constexpr Curve::Point kDataSheet[] = {{96, 1}, {768, 1}, {3072, 1}};

std::vector<Knob> knobs_of(const Kinds& kinds, ClusterSpec& spec) {
    std::vector<Knob> knobs;
    if (kinds.products) {
        std::vector<Curve::Point>& points = spec.product_efficiency.points;
        if (points.empty()) points.assign(std::begin(kDataSheet), std::end(kDataSheet));
        for (std::size_t i = 0; i < points.size(); ++i)
            knobs.push_back(product_knob(points[i].size, i));
    }
    if (kinds.products || kinds.operations)
        knobs.push_back(knob("memory_efficiency", [](ClusterSpec& it) -> double& {
            return it.memory_efficiency;
        }));
    if (kinds.operations)
        knobs.push_back(knob("launch_seconds", [](ClusterSpec& it) -> double& {
            return it.launch_seconds;
        }));
    if ((kinds.inside || kinds.between) && !spec.algorithms.empty())
        knobs.push_back(latency_knob("base_seconds of algorithms", nullptr,
                                     &CollectiveAlgorithm::base_seconds));
    if (kinds.inside) {
        knobs.push_back(latency_knob("a step inside a node", &ClusterSpec::inside,
                                     &CollectiveAlgorithm::inside_seconds));
        knobs.push_back(knob("inside.bytes_per_second", [](ClusterSpec& it) -> double& {
            return it.inside.bytes_per_second;
        }));
    }
    if (kinds.between) {
        knobs.push_back(latency_knob("a step between nodes", &ClusterSpec::between,
                                     &CollectiveAlgorithm::between_seconds));
        knobs.push_back(knob("between.bytes_per_second", [](ClusterSpec& it) -> double& {
            return it.between.bytes_per_second;
        }));
    }
    std::erase_if(knobs, [&](const Knob& each) {
        return std::ranges::all_of(each.figures(spec),
                                   [](const double* figure) { return *figure == 0; });
    });
    return knobs;
}

ClusterSpec turned(ClusterSpec spec, const std::vector<Knob>& knobs,
                   const std::vector<double>& logs) {
    for (std::size_t i = 0; i < knobs.size(); ++i)
        for (double* figure : knobs[i].figures(spec))
            *figure *= std::exp(logs[i]);
    return spec;
}

/// Returns whether nothing is faster than its data sheet, large products are at least as
/// fast as small ones, and a file can have these parts.
bool is_possible(const ClusterSpec& spec) {
    constexpr double kLeastPart = 1e-4;
    double least = kLeastPart;
    for (const Curve::Point& point : spec.product_efficiency.points)
        if (point.part < std::exchange(least, point.part)) return false;
    return least <= 1 && spec.memory_efficiency <= 1 &&
           spec.memory_efficiency >= kLeastPart;
}

/// Returns the sum of squares of log(time / measured). A small penalty keeps figures that
/// hardly matter.
double loss(const std::vector<PlacedRow>& rows, const ClusterSpec& spec,
            const std::vector<double>& logs) {
    constexpr double kPenalty = 1e-3;
    double sum = 0;
    Times times(spec);
    for (const PlacedRow& row : rows) {
        const double off = std::log(times.of(row) / row.measured.seconds);
        sum += off * off;
    }
    for (const double each : logs)
        sum += kPenalty * each * each;
    return sum;
}

/// Searches for the knobs' logarithms with the least loss.
class Search {
  public:
    Search(const std::vector<PlacedRow>& rows, const ClusterSpec& base,
           const std::vector<Knob>& knobs)
        : rows_(rows),
          base_(base),
          knobs_(knobs),
          logs_(knobs.size()),
          least_(loss(rows, base, logs_)) {}

    /// Moves one knob after the other by a step, as long as that helps, then halves the
    /// step.
    std::vector<double> result() {
        constexpr double kFirstStep = 0.4;
        constexpr int kHalvings = 7;
        constexpr int kMostRounds = 40;
        double step = kFirstStep;
        for (int halving = 0; halving < kHalvings; ++halving, step /= 2)
            for (int round = 0; round < kMostRounds && moves_all(step); ++round) {
            }
        return logs_;
    }

  private:
    bool moves_all(double step) {
        bool moved = false;
        for (double& log : logs_)
            moved |= moves(log, step) || moves(log, -step);
        return moved;
    }
    /// Moves a knob if that helps.
    bool moves(double& log, double by) {
        const double here = std::exchange(log, log + by);
        const ClusterSpec spec = turned(base_, knobs_, logs_);
        const double now = is_possible(spec) ? loss(rows_, spec, logs_) : least_;
        if (now >= least_) {
            log = here;
            return false;
        }
        least_ = now;
        return true;
    }

    const std::vector<PlacedRow>& rows_;
    const ClusterSpec& base_;
    const std::vector<Knob>& knobs_;
    std::vector<double> logs_;
    double least_;
};

/// Returns the cluster with the least loss.
ClusterSpec fitted(const std::vector<PlacedRow>& rows, const ClusterSpec& base,
                   const std::vector<Knob>& knobs) {
    return turned(base, knobs, Search(rows, base, knobs).result());
}

Errors errors_of(const std::vector<std::pair<double, double>>& times) {
    Errors errors{static_cast<int>(times.size()), 0, 0};
    for (const auto& [time, measured] : times) {
        const double off = std::abs(time / measured - 1);
        errors.mean += off / static_cast<double>(times.size());
        errors.worst = std::max(errors.worst, off);
    }
    return errors;
}

/// Four digits of a figure are enough, and are the same on every machine.
double rounded(double value) {
    return parse_number(fmt::format("{:.4g}", value)).value_or(0);
}

constexpr std::size_t kFolds = 5;

/// Places the measurements. Throws UsageError if they are too many to be fitted soon, or
/// if one takes no time on the cluster.
std::vector<PlacedRow> all_placed(const std::vector<Measurement>& rows,
                                  const ClusterSpec& base) {
    std::vector<PlacedRow> all;
    std::size_t members = 0;
    int layer_ranks = 0;
    Times times(base);
    for (const Measurement& row : rows) {
        const PlacedRow& last = all.emplace_back(placed(row, base));
        members += last.members.size();
        if (const auto* layer = std::get_if<MeasuredLayer>(&row.what))
            layer_ranks += layer->tensor_parallel;
        require(members <= kMostMembers && layer_ranks <= kMostLayerRanks,
                "the measurements have more than {} ranks in all groups, or {} in all "
                "layers; fewer measurements are expected",
                kMostMembers, kMostLayerRanks);
        require(times.of(last) > 0,
                "{} takes no time on {}; another --cluster is expected", text_of(row),
                printable(base.name));
    }
    return all;
}

Errors errors_of(const std::vector<FittedRow>& rows, double FittedRow::*time) {
    std::vector<std::pair<double, double>> times;
    times.reserve(rows.size());
    for (const FittedRow& row : rows)
        times.emplace_back(row.*time, row.measured.seconds);
    return errors_of(times);
}

}  // namespace

Calibration calibrated(const std::vector<Measurement>& measured,
                       const ClusterSpec& base) {
    Calibration result{base, base, {}, {}, {}, {}, {}};
    const std::vector<PlacedRow> rows = all_placed(measured, base);
    ClusterSpec start = base;
    const std::vector<Knob> knobs = knobs_of(kinds_of(rows, base), start);
    require(rows.size() > knobs.size(),
            "the number of measurements, {}, is expected to be more than that of "
            "constants, {}",
            rows.size(), knobs.size());
    require(is_possible(start),
            "{}: product_efficiency is expected to rise to at most 1, and "
            "memory_efficiency to be at most 1",
            printable(base.name));
    result.fitted = fitted(rows, start, knobs);
    for (const Knob& each : knobs)
        for (double* figure : each.figures(result.fitted))
            *figure = rounded(*figure);
    for (const Knob& each : knobs)
        result.constants.push_back(
            {each.name, each.value(start), each.value(result.fitted)});
    Times on_base(base), on_fitted(result.fitted);
    for (const PlacedRow& row : rows)
        result.rows.push_back({row.measured, on_base.of(row), on_fitted.of(row)});
    result.before = errors_of(result.rows, &FittedRow::before);
    result.after = errors_of(result.rows, &FittedRow::after);

    std::vector<std::pair<double, double>> left_out;
    for (std::size_t fold = 0; fold < std::min(kFolds, rows.size()); ++fold) {
        std::vector<PlacedRow> used;
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (i % kFolds != fold) used.push_back(rows[i]);
        const ClusterSpec spec = fitted(used, start, knobs);
        Times on_spec(spec);
        std::vector<std::pair<double, double>> times;
        for (std::size_t i = fold; i < rows.size(); i += kFolds)
            times.emplace_back(on_spec.of(rows[i]), rows[i].measured.seconds);
        result.folds.push_back(errors_of(times));
        left_out.insert(left_out.end(), times.begin(), times.end());
    }
    const Errors unseen = errors_of(left_out);
    result.fitted.error =
        ClusterSpec::FitError{rounded(unseen.mean), rounded(unseen.worst), unseen.rows,
                              static_cast<int>(knobs.size())};
    result.fitted.source =
        fmt::format("{} measurements, fitted by lockstep calibrate; other figures: {}",
                    rows.size(), base.source);
    return result;
}

namespace {

std::string percent_text(double part) {
    return fmt::format("{:.1f} %", 100 * part);
}

Table constant_table(const Calibration& calibration) {
    Table table{{"constant", "before", "fitted"}, {}};
    for (const FittedConstant& each : calibration.constants)
        table.rows.push_back({each.name, fmt::format("{:.4g}", each.before),
                              fmt::format("{:.4g}", each.after)});
    return table;
}

Table error_table(const Calibration& calibration) {
    Table table{{"measurements", "rows", "mean error", "worst"}, {}};
    const auto add = [&](const std::string& name, const Errors& errors) {
        table.rows.push_back({name, std::to_string(errors.rows),
                              percent_text(errors.mean), percent_text(errors.worst)});
    };
    add("all, before", calibration.before);
    add("all, fitted to them", calibration.after);
    for (std::size_t i = 0; i < calibration.folds.size(); ++i)
        add(fmt::format("fold {}, left out", i + 1), calibration.folds[i]);
    const ClusterSpec::FitError& unseen = *calibration.fitted.error;
    add("all, each left out once", {unseen.rows, unseen.mean, unseen.worst});
    return table;
}

Table worst_table(const Calibration& calibration) {
    constexpr std::size_t kMostShown = 8;
    std::vector<const FittedRow*> rows;
    for (const FittedRow& row : calibration.rows)
        rows.push_back(&row);
    std::ranges::stable_sort(rows, std::greater<>(), [](const FittedRow* row) {
        return std::abs(std::log(row->after / row->measured.seconds));
    });
    rows.resize(std::min(rows.size(), kMostShown));
    Table table{{"farthest off", "measured", "before", "fitted", "off"}, {}};
    const auto duration = [](double seconds) { return time_text(picoseconds(seconds)); };
    for (const FittedRow* row : rows)
        table.rows.push_back(
            {text_of(row->measured), duration(row->measured.seconds),
             duration(row->before), duration(row->after),
             fmt::format("{:+.1f} %", 100 * (row->after / row->measured.seconds - 1))});
    return table;
}

}  // namespace

Document calibration_page(const Calibration& calibration) {
    Document page;
    page.push_back({Paragraph{words_of(
        fmt::format("{} constants of {} were fitted to {} measurements.",
                    calibration.constants.size(), printable(calibration.base.name),
                    calibration.rows.size()))}});
    page.push_back({table_of(constant_table(calibration))});
    page.push_back({table_of(error_table(calibration))});
    page.push_back({table_of(worst_table(calibration))});
    return page;
}

namespace {

Json json_of(const Errors& errors) {
    return {{"rows", errors.rows}, {"mean", errors.mean}, {"worst", errors.worst}};
}

}  // namespace

std::string calibration_json(const Calibration& calibration) {
    Json constants = Json::array(), folds = Json::array(), rows = Json::array();
    for (const FittedConstant& each : calibration.constants)
        constants.push_back(
            {{"name", each.name}, {"before", each.before}, {"fitted", each.after}});
    for (const Errors& fold : calibration.folds)
        folds.push_back(json_of(fold));
    for (const FittedRow& row : calibration.rows)
        rows.push_back({{"what", text_of(row.measured)},
                        {"measured_seconds", row.measured.seconds},
                        {"before_seconds", row.before},
                        {"fitted_seconds", row.after}});
    const ClusterSpec::FitError& unseen = *calibration.fitted.error;
    Json document{{"base", calibration.base.name},
                  {"constants", std::move(constants)},
                  {"before", json_of(calibration.before)},
                  {"fitted", json_of(calibration.after)},
                  {"folds", std::move(folds)},
                  {"left_out", json_of(Errors{unseen.rows, unseen.mean, unseen.worst})},
                  {"rows", std::move(rows)}};
    return document.dump() + "\n";
}

}  // namespace lockstep::lessons
