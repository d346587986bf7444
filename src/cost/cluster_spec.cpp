#include "src/cost/cluster_spec.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep {

namespace {

/// Returns an approximate logarithm to base 2, linear between powers of two. It has the
/// same bits on every machine, as std::log2 may not.
double plain_log2(double x) {
    int exponent = 0;
    const double mantissa = std::frexp(x, &exponent);  // from 0.5 on, below 1
    return exponent - 1 + (2 * mantissa - 1);
}

}  // namespace

double Curve::at(double size) const {
    if (points.empty()) return 1;
    const auto after = std::ranges::upper_bound(points, size, {}, &Point::size);
    if (after == points.begin()) return after->part;
    const Point& low = *std::prev(after);
    if (after == points.end()) return low.part;
    const double part = (plain_log2(size) - plain_log2(low.size)) /
                        (plain_log2(after->size) - plain_log2(low.size));
    return low.part + part * (after->part - low.part);
}

double ClusterSpec::flops(DType dtype) const {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
            return flops_f32;
        case DType::f64:
            return flops_f64;
        case DType::bf16:
            return flops_bf16;
    }
    return 0;
}

namespace {

double factor_of(const ClusterSpec& spec, int rank,
                 double ClusterSpec::Straggler::*factor) {
    for (const ClusterSpec::Straggler& straggler : spec.stragglers)
        if (straggler.rank == rank) return straggler.*factor;
    return 1;
}

}  // namespace

double ClusterSpec::compute_factor(int rank) const {
    return factor_of(*this, rank, &Straggler::compute);
}

double ClusterSpec::link_factor(int rank) const {
    return factor_of(*this, rank, &Straggler::links);
}

std::string accuracy_text(const ClusterSpec& spec) {
    if (!spec.error) return "";
    return fmt::format(
        "Times of {} come from {} constants that were fitted to {} measurements. They "
        "are {:.0f} % off in the mean, and {:.0f} % at worst, on measurements that were "
        "left out of the fit.",
        printable(spec.name), spec.error->constants, spec.error->rows,
        100 * spec.error->mean, 100 * spec.error->worst);
}

Picoseconds slowed(Picoseconds time, double factor) {
    if (factor == 1) return time;
    const double slow = static_cast<double>(time) * factor;
    return slow < 0x1p63 ? std::llround(slow) : kUncountable;
}

Picoseconds time_at_rate(std::int64_t amount, double per_second) {
    return per_second > 0
               ? countable_picoseconds(static_cast<double>(amount) / per_second)
               : 0;
}

Picoseconds message_time(const LinkSpec& link, std::int64_t bytes) {
    return time_sum(
        countable_picoseconds(link.alpha_seconds),
        time_at_rate(bytes, link.bytes_per_second *
                                link.efficiency.at(static_cast<double>(bytes))));
}

Picoseconds operation_time(const ClusterSpec& spec, std::int64_t flops,
                           std::int64_t bytes, DType dtype, std::int64_t extent) {
    const double efficiency =
        extent == 0 ? 1 : spec.product_efficiency.at(static_cast<double>(extent));
    return time_sum(countable_picoseconds(spec.launch_seconds),
                    std::max(time_at_rate(flops, spec.flops(dtype) * efficiency),
                             time_at_rate(bytes, spec.memory_bytes_per_second *
                                                     spec.memory_efficiency)));
}

Picoseconds operation_time(const HostSpec& spec, std::int64_t flops, std::int64_t bytes,
                           DType dtype) {
    const double rate = dtype == DType::f64 ? spec.flops_f64 : spec.flops_f32;
    return std::max(time_at_rate(flops, rate),
                    time_at_rate(bytes, spec.memory_bytes_per_second));
}

Picoseconds staging_time(const HostSpec& spec, std::int64_t bytes) {
    return time_at_rate(2 * bytes, spec.memory_bytes_per_second);
}

namespace {

/// Reads a cluster's JSON member by member; each error names file and key.
class Reader {
  public:
    Reader(std::string file, ClusterSpec& spec) : file_(std::move(file)), spec_(spec) {}

    void read(const Json& json) {
        for (const auto& [key, value] : sorted(json, "the file"))
            member(key, value);
    }

  private:
    void member(const std::string& key, const Json& value) {
        static const std::map<std::string, double ClusterSpec::*> kRates{
            {"flops_f32", &ClusterSpec::flops_f32},
            {"flops_f64", &ClusterSpec::flops_f64},
            {"flops_bf16", &ClusterSpec::flops_bf16},
            {"memory_bytes_per_second", &ClusterSpec::memory_bytes_per_second}};
        static const std::map<std::string, LinkSpec ClusterSpec::*> kLinks{
            {"host_copy", &ClusterSpec::host_copy},
            {"inside", &ClusterSpec::inside},
            {"between", &ClusterSpec::between}};
        if (const auto rate = kRates.find(key); rate != kRates.end())
            spec_.*rate->second = per_second(value, key);
        else if (const auto link = kLinks.find(key); link != kLinks.end())
            spec_.*link->second = link_of(value, key);
        else if (key == "launch_seconds")
            spec_.launch_seconds = seconds(value, key);
        else if (key == "name")
            spec_.name = text(value, key);
        else if (key == "source")
            spec_.source = text(value, key);
        else if (key == "memory_bytes")
            spec_.memory_bytes = integer(value, key, 0, std::int64_t{1} << 50);
        else if (key == "devices_per_node")
            spec_.devices_per_node = static_cast<int>(integer(value, key, 1, 1 << 20));
        else if (key == "network_ports")
            spec_.network_ports = static_cast<int>(integer(value, key, 0, 1 << 20));
        else if (key == "nodes_per_switch")
            spec_.nodes_per_switch = static_cast<int>(integer(value, key, 0, 1 << 20));
        else if (key == "oversubscription")
            spec_.oversubscription = factor(value, key);
        else if (key == "host_links")
            spec_.host_links = static_cast<int>(integer(value, key, 0, 1 << 20));
        else if (key == "host")
            spec_.host = host_of(value, key);
        else if (key == "phases")
            spec_.phases = phases_of(value, key);
        else if (key == "stragglers")
            spec_.stragglers = stragglers_of(value, key);
        else if (key == "product_efficiency")
            spec_.product_efficiency = curve_of(value, key);
        else if (key == "memory_efficiency")
            spec_.memory_efficiency = part(value, key);
        else if (key == "algorithms")
            spec_.algorithms = algorithms_of(value, key);
        else if (key == "error")
            spec_.error = error_of(value, key);
        else if (key != "base")
            fail(key,
                 "is not known; a cluster has name, source, base, flops_f32, flops_f64, "
                 "flops_bf16, product_efficiency, memory_bytes_per_second, "
                 "memory_efficiency, memory_bytes, launch_seconds, host, host_copy, "
                 "host_links, inside, between, devices_per_node, network_ports, "
                 "nodes_per_switch, oversubscription, algorithms, phases, stragglers and "
                 "error");
    }

    static std::string member_of(const std::string& key, const std::string& name) {
        return fmt::format("{}.{}", key, name);
    }

    LinkSpec link_of(const Json& value, const std::string& key) {
        LinkSpec link;
        for (const auto& [name, number_value] : sorted(value, key)) {
            if (name == "alpha_seconds")
                link.alpha_seconds = seconds(number_value, member_of(key, name));
            else if (name == "bytes_per_second")
                link.bytes_per_second = per_second(number_value, member_of(key, name));
            else if (name == "efficiency")
                link.efficiency = curve_of(number_value, member_of(key, name));
            else
                fail(member_of(key, name),
                     "is not known; a link has alpha_seconds, bytes_per_second and "
                     "efficiency");
        }
        return link;
    }

    Curve curve_of(const Json& value, const std::string& key) {
        if (!value.is_array()) fail(key, "is not a list of points [size, part]");
        Curve curve;
        for (const Json& point : value.elements()) {
            const std::string place = fmt::format("{}[{}]", key, curve.points.size());
            if (!point.is_array() || point.elements().size() != 2)
                fail(place, "is not a point [size, part]");
            const double size = number(point.elements()[0], place);
            if (!(size >= 1 && size <= 0x1p62))
                fail(place, "has a size that is not from 1 to 2^62");
            if (!curve.points.empty() && size <= curve.points.back().size)
                fail(place, "has a size that is not larger than the one before");
            curve.points.push_back({size, part(point.elements()[1], place)});
        }
        return curve;
    }

    std::vector<CollectiveAlgorithm> algorithms_of(const Json& value,
                                                   const std::string& key) {
        if (!value.is_array()) fail(key, "is not a list of algorithms");
        std::vector<CollectiveAlgorithm> algorithms;
        for (const Json& element : value.elements())
            algorithms.push_back(
                algorithm_of(element, fmt::format("{}[{}]", key, algorithms.size())));
        return algorithms;
    }

    CollectiveAlgorithm algorithm_of(const Json& value, const std::string& key) {
        CollectiveAlgorithm algorithm;
        const std::map<std::string, double*> times{
            {"base_seconds", &algorithm.base_seconds},
            {"inside_seconds", &algorithm.inside_seconds},
            {"between_seconds", &algorithm.between_seconds}};
        const std::map<std::string, double*> parts{
            {"inside_efficiency", &algorithm.inside_efficiency},
            {"between_efficiency", &algorithm.between_efficiency}};
        for (const auto& [name, member] : sorted(value, key)) {
            const std::string place = member_of(key, name);
            if (const auto time = times.find(name); time != times.end())
                *time->second = seconds(member, place);
            else if (const auto found = parts.find(name); found != parts.end())
                *found->second = part(member, place);
            else if (name == "name")
                algorithm.name = text(member, place);
            else if (name == "kind")
                algorithm.kind = kind_of(member, place);
            else
                fail(place,
                     "is not known; an algorithm has name, kind, base_seconds, "
                     "inside_seconds, between_seconds, inside_efficiency and "
                     "between_efficiency");
        }
        return algorithm;
    }

    CollectiveAlgorithm::Kind kind_of(const Json& value, const std::string& key) {
        const std::string name = text(value, key);
        for (std::size_t i = 0; i < std::size(CollectiveAlgorithm::kKinds); ++i)
            if (name == CollectiveAlgorithm::kKinds[i])
                return static_cast<CollectiveAlgorithm::Kind>(i);
        fail(key, fmt::format("is '{}'; {} is expected", name,
                              fmt::join(CollectiveAlgorithm::kKinds, ", ")));
    }

    HostSpec host_of(const Json& value, const std::string& key) {
        HostSpec host = spec_.host;
        const std::map<std::string, double*> rates{
            {"flops_f32", &host.flops_f32},
            {"flops_f64", &host.flops_f64},
            {"memory_bytes_per_second", &host.memory_bytes_per_second}};
        for (const auto& [name, figure] : sorted(value, key)) {
            const std::string place = member_of(key, name);
            if (const auto rate = rates.find(name); rate != rates.end())
                *rate->second = per_second(figure, place);
            else if (name == "memory_bytes")
                host.memory_bytes = integer(figure, place, 0, std::int64_t{1} << 50);
            else
                fail(place,
                     "is not known; a host has flops_f32, flops_f64, "
                     "memory_bytes_per_second and memory_bytes");
        }
        return host;
    }

    ClusterSpec::PhaseTimes phases_of(const Json& value, const std::string& key) {
        ClusterSpec::PhaseTimes times;
        const std::map<std::string, double*> known{
            {"forward", &times.forward},
            {"backward_input", &times.backward_input},
            {"backward_weight", &times.backward_weight}};
        for (const auto& [name, duration] : sorted(value, key)) {
            const auto place = known.find(name);
            if (place == known.end())
                fail(member_of(key, name),
                     "is not known; phases are forward, backward_input and "
                     "backward_weight");
            *place->second = seconds(duration, member_of(key, name));
        }
        return times;
    }

    ClusterSpec::FitError error_of(const Json& value, const std::string& key) {
        ClusterSpec::FitError error;
        for (const auto& [name, figure] : sorted(value, key)) {
            const std::string place = member_of(key, name);
            if (name == "mean")
                error.mean = number(figure, place);
            else if (name == "worst")
                error.worst = number(figure, place);
            else if (name == "rows")
                error.rows = static_cast<int>(integer(figure, place, 0, 1 << 30));
            else if (name == "constants")
                error.constants = static_cast<int>(integer(figure, place, 0, 1 << 30));
            else
                fail(place, "is not known; an error has mean, worst, rows and constants");
        }
        return error;
    }

    std::vector<ClusterSpec::Straggler> stragglers_of(const Json& value,
                                                      const std::string& key) {
        if (!value.is_array()) fail(key, "is not a list of devices");
        std::vector<ClusterSpec::Straggler> all;
        std::set<int> ranks;
        for (const Json& element : value.elements()) {
            const std::string place = fmt::format("{}[{}]", key, all.size());
            const ClusterSpec::Straggler one = straggler_of(element, place);
            if (!ranks.insert(one.rank).second)
                fail(place, fmt::format("repeats rank {}", one.rank));
            all.push_back(one);
        }
        return all;
    }

    ClusterSpec::Straggler straggler_of(const Json& value, const std::string& key) {
        ClusterSpec::Straggler straggler{-1};
        for (const auto& [name, member] : sorted(value, key)) {
            const std::string place = member_of(key, name);
            if (name == "rank")
                straggler.rank = static_cast<int>(integer(member, place, 0, 1 << 20));
            else if (name == "compute")
                straggler.compute = factor(member, place);
            else if (name == "links")
                straggler.links = factor(member, place);
            else
                fail(place, "is not known; a straggler has rank, compute and links");
        }
        if (straggler.rank < 0) fail(key, "names no rank");
        return straggler;
    }

    double factor(const Json& value, const std::string& key) {
        const double factor = number(value, key);
        if (!(factor >= 1 && factor <= 100)) fail(key, "is not a factor from 1 to 100");
        return factor;
    }

    // A sum of many such times may still be too long; the clock refuses that.

    double seconds(const Json& value, const std::string& key) {
        const double seconds = number(value, key);
        if (!(seconds <= 10'000)) fail(key, "is not a number of seconds from 0 to 10000");
        return seconds;
    }

    double part(const Json& value, const std::string& key) {
        const double part = number(value, key);
        if (!(part >= 0.0001 && part <= 100)) fail(key, "is not from 0.0001 to 100");
        return part;
    }

    double per_second(const Json& value, const std::string& key) {
        const double rate = number(value, key);
        if (!(rate == 0 || (rate >= 1000 && rate <= 1e30)))
            fail(key, "is neither 0 (free) nor a rate from 1000 to 1e30");
        return rate;
    }

    double number(const Json& value, const std::string& key) {
        if (!value.is_number()) fail(key, "is not a number");
        const double number = value.get<double>();
        if (!(number >= 0)) fail(key, "is not a number from 0 on");
        return number;
    }

    std::int64_t integer(const Json& value, const std::string& key, std::int64_t least,
                         std::int64_t most) {
        // 192e9 is a whole number, too.
        const double size = value.is_number() ? value.get<double>() : -1;
        if (size != std::floor(size) || size < static_cast<double>(least) ||
            size > static_cast<double>(most))
            fail(key, fmt::format("is not a whole number from {} to {}", least, most));
        return static_cast<std::int64_t>(size);
    }

    std::string text(const Json& value, const std::string& key) {
        if (!value.is_string()) fail(key, "is not a string");
        return value.get<std::string>();
    }

    /// Returns an object's members sorted by name, so that the first error does not
    /// depend on their order in the file.
    std::map<std::string, Json> sorted(const Json& value, const std::string& key) {
        if (!value.is_object()) fail(key, "is not a JSON object");
        return {value.members().begin(), value.members().end()};
    }

    [[noreturn]] void fail(const std::string& key, const std::string& what) {
        throw UsageError(fmt::format("cluster file {}: {} {}", file_, key, what));
    }

    std::string file_;
    ClusterSpec& spec_;
};

std::optional<ClusterSpec> find_preset(const std::string& name) {
    constexpr std::string_view kPlain = "-data-sheet";
    const bool plain = name.ends_with(kPlain);
    const auto found = std::ranges::find(
        cluster_presets(), plain ? name.substr(0, name.size() - kPlain.size()) : name,
        &ClusterSpec::name);
    if (found == cluster_presets().end()) return std::nullopt;
    ClusterSpec spec = *found;
    if (!plain) return spec;
    spec.name = name;
    spec.product_efficiency = spec.inside.efficiency = spec.between.efficiency = {};
    spec.memory_efficiency = 1;
    spec.algorithms.clear();
    return spec;
}

std::string file_text(const std::string& path) {
    constexpr std::uint64_t kMostBytes = 1 << 20;
    try {
        return read_text_file(path, kMostBytes);
    } catch (const std::system_error& error) {
        throw UsageError(fmt::format(
            "cluster '{}' is neither a preset ({}) nor a file that can be "
            "read: {}",
            path, fmt::join(cluster_preset_names(), ", "), error.code().message()));
    } catch (const UsageError& error) {
        throw UsageError(fmt::format("cluster file {}", error.what()));
    }
}

Json parse_file(const std::string& path) {
    const std::string text = file_text(path);
    try {
        return Json::parse(text);
    } catch (const JsonError& error) {
        require(error.byte > 0, "cluster file {} contains a number that is too large",
                path);
        throw UsageError(
            fmt::format("cluster file {} is not JSON: at byte {}", path, error.byte));
    }
}

}  // namespace

std::vector<std::string> cluster_preset_names() {
    std::vector<std::string> names;
    for (const ClusterSpec& spec : cluster_presets())
        names.push_back(spec.name);
    return names;
}

ClusterSpec load_cluster(const std::string& name_or_path) {
    if (const auto preset = find_preset(name_or_path)) return *preset;
    const Json json = parse_file(name_or_path);
    ClusterSpec spec;
    if (json.is_object() && json.contains("base")) {
        const std::string base =
            json.at("base").is_string() ? json.at("base").get<std::string>() : "";
        const auto preset = find_preset(base);
        require(preset.has_value(), "cluster file {}: base is not a preset ({})",
                name_or_path, fmt::join(cluster_preset_names(), ", "));
        spec = *preset;
    }
    spec.name = std::filesystem::path(name_or_path).stem().string();
    Reader(name_or_path, spec).read(json);
    return spec;
}

}  // namespace lockstep
