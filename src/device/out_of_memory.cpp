// Explains a device that is full: what fills it, which lines' tensors occupy most of it,
// and how the memory in use has grown.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/core/units.hpp"
#include "src/device/device.hpp"
#include "src/device/ledger.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

namespace {

/// The live tensors of one line and category, with one name or with any name.
struct Holding {
    std::string what;  ///< "activations made at src/nn/linear.cpp:31"
    SourceLine at;
    std::int64_t bytes = 0;
    std::vector<const Storage*> tensors;  ///< oldest first
};

/// Returns the live storage, oldest first, without `wanted`, which has no memory yet.
std::vector<const Storage*> live_storage(const Device& device, const Storage* wanted) {
    std::vector<const Storage*> live;
    for (const Storage* storage = device.live(); storage; storage = storage->next)
        if (storage != wanted && storage->counted) live.push_back(storage);
    std::reverse(live.begin(), live.end());
    return live;
}

std::string names_of(const Storage& storage) {
    const std::string names = storage.names(0, storage.bytes);
    return names.empty() ? "" : fmt::format(" ({})", names);
}

/// Returns the holdings by line and category, and by name if `by_name`, the largest
/// first.
std::vector<Holding> holdings_of(const std::vector<const Storage*>& live, bool by_name) {
    std::map<std::string, Holding> by_line;
    for (const Storage* storage : live) {
        const std::string what =
            fmt::format("{}{} made at {}", name_of(storage->category),
                        by_name ? names_of(*storage) : "", storage->allocated_at.text());
        Holding& holding = by_line[what];
        holding.what = what;
        holding.at = storage->allocated_at;
        holding.bytes += storage->bytes;
        holding.tensors.push_back(storage);
    }
    std::vector<Holding> sorted;
    sorted.reserve(by_line.size());
    for (auto& [what, holding] : by_line)
        sorted.push_back(std::move(holding));
    std::stable_sort(
        sorted.begin(), sorted.end(),
        [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
    return sorted;
}

std::string text_of(const Holding& holding) {
    return fmt::format("{} in {} {} of {}", bytes_text(holding.bytes),
                       holding.tensors.size(),
                       holding.tensors.size() == 1 ? "tensor" : "tensors", holding.what);
}

/// " (layer0.weight, layer0.bias, layer1.weight and 5 more)": the names of a line's
/// tensors, oldest first.
std::string names_text(const Holding& holding) {
    constexpr std::size_t kTold = 3;
    std::vector<std::string> names;
    for (const Storage* storage : holding.tensors) {
        const std::string name = storage->names(0, storage->bytes);
        if (!name.empty() && std::ranges::find(names, name) == names.end())
            names.push_back(name);
    }
    if (names.empty()) return "";
    const std::size_t untold = names.size() - std::min(kTold, names.size());
    names.resize(names.size() - untold);
    return fmt::format(" ({}{})", fmt::join(names, ", "),
                       untold > 0 ? fmt::format(" and {} more", untold) : "");
}

/// "micro-batch 3" or "micro-batches 0–7".
std::string range_text(const char* one, const char* many, const std::set<int>& numbers) {
    if (numbers.size() == 1) return fmt::format("{} {}", one, *numbers.begin());
    return fmt::format("{} {}–{}", many, *numbers.begin(), *numbers.rbegin());
}

/// When the tensors were made: ", in forward of micro-batches 0–7 (1 each), in steps
/// 0–3 (2 each)".
std::string when_text(const std::vector<const Storage*>& tensors) {
    std::set<std::string> phases;
    std::set<int> micro_batches;
    std::set<int> steps;
    std::set<Picoseconds> times;
    for (const Storage* storage : tensors) {
        const Moment& moment = storage->allocated_in;
        phases.insert(moment.phase);
        if (moment.micro_batch >= 0) micro_batches.insert(moment.micro_batch);
        steps.insert(moment.step);
        times.insert(moment.time);
    }
    const auto each = [&](const std::set<int>& values) {
        return values.size() > 1 && tensors.size() % values.size() == 0
                   ? fmt::format(" ({} each)", tensors.size() / values.size())
                   : "";
    };
    std::string text;
    if (phases.size() == 1 && !phases.begin()->empty()) text += ", in " + *phases.begin();
    if (!micro_batches.empty())
        text += (text.empty() ? ", in " : " of ") +
                range_text("micro-batch", "micro-batches", micro_batches) +
                each(micro_batches);
    if (steps.size() > 1)
        text += ", in " + range_text("step", "steps", steps) + each(steps);
    if (text.empty() && times.size() > 1)
        text = fmt::format(", one after the other from {} to {}",
                           time_text(*times.begin()), time_text(*times.rbegin()));
    return text;
}

/// Returns the likely cause if one line's tensors occupy most; null if none is known.
const char* cause_of(const std::vector<const Storage*>& tensors) {
    std::set<int> steps;
    std::set<int> micro_batches;
    for (const Storage* storage : tensors) {
        steps.insert(storage->allocated_in.step);
        micro_batches.insert(storage->allocated_in.micro_batch);
    }
    if (steps.size() > 2)
        return "Tensors of past steps are still in memory. Look for what keeps them "
               "(such as a list to which each step adds its output or loss), and keep "
               "only numbers, or nothing.";
    const Storage& first = *tensors.front();
    const bool is_of_pass = first.allocated_in.phase[0] != '\0' && tensors.size() > 1;
    if (is_of_pass && first.category == MemoryCategory::parameters)
        return "Values of several layers, made in a pass, are in memory at the same "
               "time. If they are gathered from shards, release each layer's values "
               "after their use (close a unit of ZeRO-3).";
    if (is_of_pass && first.category == MemoryCategory::gradients)
        return "Gradients of several layers, made in a pass, are in memory at the same "
               "time. If they are sharded, release each layer's gradients after their "
               "reduce-scatter.";
    if (micro_batches.size() > 2)
        return "Tensors of many micro-batches are in memory at the same time: run the "
               "backward of a micro-batch before the forwards of too many others, and "
               "release its activations then.";
    return nullptr;
}

/// Lists the lines whose tensors occupy the most memory.
void add_holdings(std::vector<std::string>& details,
                  const std::vector<Holding>& holdings) {
    constexpr std::size_t kListed = 8;
    if (holdings.empty()) return;
    details.emplace_back("What fills it:");
    for (std::size_t i = 0; i < std::min(kListed, holdings.size()); ++i)
        details.push_back("  " + text_of(holdings[i]) + when_text(holdings[i].tensors));
    if (holdings.size() > kListed)
        details.push_back(fmt::format("  and {} more lines", holdings.size() - kListed));
}

/// A stretch of the program, and how much of the memory in use now was allocated by its
/// end.
struct Growth {
    std::string after;
    std::int64_t bytes = 0;
};

std::string text_of(const Moment& moment, bool steps) {
    std::string text = moment.phase;
    if (moment.micro_batch >= 0)
        text += fmt::format(" of micro-batch {}", moment.micro_batch);
    if (steps && !text.empty()) text += fmt::format(" in step {}", moment.step);
    return text;
}

/// Returns the growth by phases if the program has any, else by time.
std::vector<Growth> growth_of(const std::vector<const Storage*>& live) {
    constexpr std::size_t kStretches = 6;
    const bool phases = std::any_of(live.begin(), live.end(), [](const Storage* storage) {
        return storage->allocated_in.phase[0] != '\0';
    });
    const bool steps = !live.empty() && live.back()->allocated_in.step > 0;
    std::vector<Growth> growth;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < live.size(); ++i) {
        const Moment& moment = live[i]->allocated_in;
        bytes += live[i]->bytes;
        std::string after =
            phases ? text_of(moment, steps) : "by " + time_text(moment.time);
        if (phases)
            after = after.empty() ? "outside of phases" : after.insert(0, "after ");
        const std::size_t stretch = i * kStretches / live.size();
        const bool fresh =
            growth.empty() || (phases ? after != growth.back().after
                                      : stretch != (i - 1) * kStretches / live.size());
        if (fresh) growth.emplace_back();
        growth.back() = {after, bytes};
    }
    return growth;
}

/// Tells how the memory in use now has grown. Memory that has been freed is not counted.
void add_growth(std::vector<std::string>& details,
                const std::vector<const Storage*>& live) {
    constexpr std::size_t kEnds = 4;
    const std::vector<Growth> growth = growth_of(live);
    if (growth.size() < 2) return;
    details.emplace_back("Growth of the memory in use now:");
    for (std::size_t i = 0; i < growth.size(); ++i) {
        if (growth.size() > 2 * kEnds && i == kEnds) {
            details.emplace_back("  …");
            i = growth.size() - kEnds;
        }
        details.push_back(
            fmt::format("  {}: {}", growth[i].after, bytes_text(growth[i].bytes)));
    }
}

std::string purpose_text(const Storage& wanted) {
    return fmt::format("{} at {}", name_of(wanted.category), wanted.allocated_at.text());
}

/// `wanted` may be null; `asked` says what the memory was for and how much there is.
OutOfMemoryError full(const Device& device, const Storage* wanted, std::int64_t bytes,
                      const std::string& asked) {
    const std::vector<const Storage*> live = live_storage(device, wanted);
    const std::vector<Holding> lines = holdings_of(live, /*by_name=*/false);
    Diagnosis diagnosis = diagnosis_of("F30");
    diagnosis.sentence = asked;
    if (wanted != nullptr)
        diagnosis.parties.push_back({{device.index()},
                                     fmt::format("asks for {} for {}", bytes_text(bytes),
                                                 name_of(wanted->category)),
                                     "",
                                     wanted->allocated_at,
                                     {}});
    if (!lines.empty()) {
        const Holding& most = lines.front();
        diagnosis.sentence += fmt::format("; most is held by {}{}{}", text_of(most),
                                          names_text(most), when_text(most.tensors));
        if (const char* const cause = cause_of(most.tensors)) diagnosis.cause = cause;
        diagnosis.parties.push_back({{device.index()}, "holds most", "", most.at, {}});
    }
    add_holdings(diagnosis.details, holdings_of(live, /*by_name=*/true));
    add_growth(diagnosis.details, live);
    std::vector<const Storage*> all = live;
    if (wanted != nullptr) all.push_back(wanted);
    std::vector<std::string> held;
    for (const Holding& holding : holdings_of(all, /*by_name=*/false))
        held.push_back(text_of(holding));
    return {std::move(diagnosis), std::move(held)};
}

}  // namespace

OutOfMemoryError out_of_memory(const Ledger& ledger, const Storage& wanted,
                               const std::string& whose) {
    return full(*wanted.device, &wanted, wanted.bytes,
                fmt::format("{} is out of memory: {} more for {} does not fit, because "
                            "{} of its {} are in use",
                            whose, bytes_text(wanted.bytes), purpose_text(wanted),
                            bytes_text(ledger.total()), bytes_text(ledger.capacity())));
}

OutOfMemoryError out_of_memory(const Device& device, std::int64_t wanted_bytes,
                               std::int64_t free_bytes, std::int64_t total_bytes) {
    const Storage* newest = device.live();
    const Storage* wanted =
        newest && !newest->data && newest->bytes == wanted_bytes ? newest : nullptr;
    return full(device, wanted, wanted_bytes,
                fmt::format("rank {} is out of memory: {} more for {} does not fit, "
                            "because only {} of the GPU's {} are free",
                            device.index(), bytes_text(wanted_bytes),
                            wanted ? purpose_text(*wanted) : "an operation's own use",
                            bytes_text(free_bytes), bytes_text(total_bytes)));
}

}  // namespace lockstep
