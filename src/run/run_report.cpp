#include "src/run/run_report.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/core/wire.hpp"

namespace lockstep {

std::int64_t RankReport::bytes_sent() const {
    std::int64_t bytes = 0;
    for (const Traffic& part : traffic)
        bytes += part.bytes_sent;
    return bytes;
}

std::int64_t RankReport::bytes_sent_by(std::string_view verb) const {
    std::int64_t bytes = 0;
    for (const Traffic& part : traffic)
        if (part.verb == verb) bytes += part.bytes_sent;
    return bytes;
}

std::int64_t RankReport::messages_sent() const {
    std::int64_t messages = 0;
    for (const Traffic& part : traffic)
        messages += part.messages_sent;
    return messages;
}

Part RankReport::part_of(const std::string& name) const {
    const auto part = kept_parts.find(name);
    return part == kept_parts.end() ? whole_part(kept.at(name).shape()) : part->second;
}

Picoseconds RunReport::makespan() const {
    Picoseconds latest = 0;
    for (const RankReport& rank : ranks)
        latest = std::max(latest, rank.time.end);
    return latest;
}

Picoseconds RunReport::time_in_phases() const {
    Picoseconds first = ranks.empty() ? 0 : ranks.front().time.begin;
    for (const RankReport& rank : ranks)
        first = std::min(first, rank.time.begin);
    return makespan() - first;
}

std::int64_t RunReport::bytes_sent() const {
    std::int64_t bytes = 0;
    for (const RankReport& rank : ranks)
        bytes += rank.bytes_sent();
    return bytes;
}

std::int64_t RunReport::messages_sent() const {
    std::int64_t messages = 0;
    for (const RankReport& rank : ranks)
        messages += rank.messages_sent();
    return messages;
}

std::int64_t RunReport::most_held() const {
    std::int64_t most = 0;
    for (const RankReport& rank : ranks)
        most = std::max(most, rank.memory.peak);
    return most;
}

namespace {

/// A tensor that is put together from the ranks' shards.
class Whole {
  public:
    Whole(const std::string& name, Shape shape, DType dtype)
        : name_(name),
          values_(shape, dtype),
          keepers_(static_cast<std::size_t>(shape.elements()), -1) {}

    void add(int rank, const HostTensor& shard, const Part& part) {
        require(
            part.whole == values_.shape() && shard.dtype() == values_.dtype(),
            "'{}': rank {} kept a part of {} {}, but a lower rank kept a part of {} {}",
            name_, rank, shard.dtype(), part.whole, values_.dtype(), values_.shape());
        require(is_sound(part) && shard.shape() == part.shape,
                "'{}': rank {} kept {}, which does not match its declared part of {}",
                name_, rank, shard.shape(), part.whole);
        each_run(part, [&](std::int64_t at, std::int64_t from, std::int64_t elements) {
            for (std::int64_t i = 0; i < elements; ++i)
                add(rank, from + i, shard, at + i);
        });
    }

    HostTensor finished() {
        const auto gap = std::ranges::find(keepers_, -1);
        require(gap == keepers_.end(), "'{}': no rank kept element {} of {}", name_,
                gap - keepers_.begin(), values_.shape());
        return std::move(values_);
    }

  private:
    void add(int rank, std::int64_t element, const HostTensor& shard, std::int64_t at) {
        const std::int64_t bytes = bytes_of(values_.dtype());
        std::byte* const here = values_.data() + element * bytes;
        const std::byte* const there = shard.data() + at * bytes;
        int& keeper = keepers_[element];
        require(keeper < 0 || std::memcmp(here, there, bytes) == 0, [&] {
            return fmt::format(
                "'{}': ranks {} and {} kept different bits of element {} "
                "of {}: {:.17g} and {:.17g}",
                name_, keeper, rank, element, values_.shape(), values_.at(element),
                shard.at(at));
        });
        std::memcpy(here, there, bytes);
        keeper = rank;
    }

    const std::string& name_;
    HostTensor values_;
    std::vector<int> keepers_;  ///< by element: the last rank that kept it, or -1
};

}  // namespace

HostTensor RunReport::whole(const std::string& name) const {
    std::optional<Whole> whole;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto kept = ranks[rank].kept.find(name);
        if (kept == ranks[rank].kept.end()) continue;
        const Part part = ranks[rank].part_of(name);
        if (!whole) whole.emplace(name, part.whole, kept->second.dtype());
        whole->add(static_cast<int>(rank), kept->second, part);
    }
    require(whole.has_value(), "no rank kept '{}'", name);
    return whole->finished();
}

std::string report_bytes(const RunReport& report) {
    WireWriter out;
    out(report);
    return std::move(out.bytes());
}

RunReport read_report(const std::string& bytes) {
    try {
        WireReader in(bytes);
        RunReport report = in.get<RunReport>();
        in.end();
        return report;
    } catch (const WireError&) {
        throw UsageError("these bytes are not the report of a run");
    }
}

}  // namespace lockstep
