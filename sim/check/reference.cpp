#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/core/host_tensor.hpp"
#include "src/report/compare.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// When all ranks have ended, compares the kept tensors with the tensors of the same
/// names on one device. The difference may show its cause. If all values differ by one
/// factor, a factor that is a group's size means a wrong average (F21), and the number of
/// micro-batches or steps means wrong accumulation (F27). If rows have different weights
/// and ranks had different numbers of rows, the cause is a mean of unequal means (F28).
///
/// A shard is compared with its part of the tensor that one device kept; padding is not
/// compared. It is also a mistake if only the ranks or only the one device kept a name,
/// or if shapes or dtypes differ. Values may differ by as much as another order of their
/// sums can cause; integers must be equal, and NaN never passes.
class ReferenceWatcher final : public Watcher {
  public:
    ReferenceWatcher(const Engine& engine, RankReport expected);

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void run_ended() override;

  private:
    /// The losses and steps of a rank.
    struct Work {
        std::int64_t rows = 0;  ///< of the losses since its last update
        std::int64_t rows_a_step = 0;
        int losses = 0;  ///< since its last update
        int losses_a_step = 0;
        bool uneven = false;  ///< losses of one step had different numbers of rows
        std::int64_t rows_before = 0;
        int steps = 0;
        const char* loss = nullptr;
        SourceLine loss_at;
    };
    struct Difference {
        std::string name;
        std::int64_t at = -1;  ///< the element with the largest difference
        double expected = 0;
        double got = 0;
        double relative = 0;  ///< relative to the largest value
        double factor = 0;    ///< `got` / `expected` if equal in all elements; else 0
        bool is_nan = false;
        bool is_exact = false;  ///< the values are integers, which must be equal
        std::string place;      ///< "element 3", "element 3 of rank 1's part"
    };
    using Lines = std::map<std::string, SourceLine>;

    void require_partners(Lines RankReport::*lines, const char* call) const;
    void require_same_whole(const std::string& name) const;
    void require_same_values(const std::string& name) const;
    void require_all_kept(const std::string& name) const;
    std::vector<int> keepers_of(const std::string& name) const;
    FaultError unlike(const std::string& name, const std::vector<int>& ranks,
                      const std::string& how) const;
    const RankReport& report_of(int rank) const { return engine_.ranks()[rank]->report; }

    static bool differs(const HostTensor& expected, const HostTensor& got, double largest,
                        Difference& difference);
    Diagnosis explain(const Difference& difference, const std::vector<int>& ranks) const;
    std::string fault_of(const Difference& difference, std::string& reason,
                         std::string& cure) const;
    std::string fault_of_factor(double factor, std::string& reason,
                                std::string& cure) const;
    bool is_group_size(double n) const;

    const Engine& engine_;
    RankReport expected_;
    std::vector<Work> work_;
    std::optional<double> row_factor_;  ///< of the first loss's gradient
    bool rows_weigh_alike_ = true;      ///< in all losses of all ranks
    Origin reduction_;                  ///< the last sum or mean of more than one number
};

/// The assumed length of sums over rows and steps. It bounds the allowed difference.
constexpr std::int64_t kSumLength = 1'000'000;

bool near(double value, double wanted) {
    return std::abs(value - wanted) <= 1e-4 * std::abs(wanted);
}

/// Returns a mistake: ranks and one device do not keep the same things.
FaultError not_kept_alike(std::string sentence, std::vector<Diagnosis::Party> parties) {
    Diagnosis diagnosis;
    diagnosis.title = "not what one device keeps";
    diagnosis.sentence = std::move(sentence);
    diagnosis.cause =
        "Ranks and one device (ClusterOptions::reference) must keep the same things "
        "under the same names. Look for a name that is mistyped; and a rank that keeps a "
        "shard must say which part of the whole it is: keep(name, tensor, part).";
    diagnosis.parties = std::move(parties);
    return FaultError(std::move(diagnosis));
}

/// Runs the reference on one virtual device of the same kind, and returns what it keeps.
RankReport run_reference(const ClusterOptions& options) {
    ClusterOptions one = options;
    one.ranks = 1;
    one.reference = nullptr;
    one.check = CheckLevel::cheap;
    one.trace = false;
    one.stands_still.clear();
    one.spec.memory_bytes = 0;  // no limit: one device needs the memory of all ranks
    return Engine(one).run(options.reference).ranks.front();
}

ReferenceWatcher::ReferenceWatcher(const Engine& engine, RankReport expected)
    : engine_(engine), expected_(std::move(expected)), work_(engine.ranks().size()) {}

void ReferenceWatcher::executing(int rank, const DeviceOperation& operation) {
    Work& work = work_[rank];
    if (operation.derivation.kind == Derivation::Kind::loss_gradient) {
        const std::int64_t rows = operation.reads[0]->shape().matrix_rows();
        work.uneven = work.uneven || (work.losses > 0 && rows != work.rows_before);
        work.rows_before = rows;
        work.rows += rows;
        ++work.losses;
        work.loss = operation.name;
        work.loss_at = operation.at;
        const double factor = operation.derivation.factor;
        if (!row_factor_) row_factor_ = factor;
        rows_weigh_alike_ = rows_weigh_alike_ && near(factor, *row_factor_);
    }
    if (operation.derivation.kind == Derivation::Kind::update && work.losses > 0) {
        work.rows_a_step = work.rows;
        work.losses_a_step = work.losses;
        work.rows = work.losses = 0;
        ++work.steps;
    }
}

void ReferenceWatcher::collective_begins(const Team& /*team*/, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    if (first.is_sum() && first.count > 1) reduction_ = origin_of(meeting);
}

/// Returns the factor by which all values of `got` differ from `expected`; 0 if there is
/// none. Values that are almost zero, compared with the largest, are ignored.
double common_factor(const HostTensor& expected, const HostTensor& got, double largest) {
    double factor = 0;
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
        const double a = expected.at(i);
        const double b = got.at(i);
        if (std::abs(a) <= 1e-3 * largest && std::abs(b) <= 1e-3 * largest) continue;
        if (factor == 0) factor = b / a;
        const bool same = std::abs(b - factor * a) <= 1e-4 * largest;
        if (!same || !std::isfinite(factor)) return 0;
    }
    return factor;
}

/// Returns the largest finite value of a whole tensor; a shard may have only noise.
double largest_of(const HostTensor& whole) {
    double largest = 0;
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        if (std::isfinite(whole.at(i)))
            largest = std::max(largest, std::abs(whole.at(i)));
    return largest;
}

/// Returns whether the values differ, and how. `largest` is the whole's largest value.
bool ReferenceWatcher::differs(const HostTensor& expected, const HostTensor& got,
                               double largest, Difference& difference) {
    double apart = 0;
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
        const double a = expected.at(i);
        const double b = got.at(i);
        if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
        if (a == b) continue;
        const double distance = std::abs(a - b);
        if (difference.at >= 0 && distance <= apart) continue;
        if (difference.is_nan) continue;
        apart = distance;
        difference.is_nan = !std::isfinite(distance);
        difference.at = i;
        difference.expected = a;
        difference.got = b;
    }
    if (difference.at < 0) return false;
    difference.relative = largest > 0 ? apart / largest : apart;
    // bf16 rounds so much that the bound of a long sum would allow any number.
    const std::int64_t length = expected.dtype() == DType::bf16 ? 1 : kSumLength;
    if (difference.relative <= sum_bound(expected.dtype(), length)) return false;
    difference.is_exact = !is_floating(expected.dtype());
    if (!difference.is_nan && !difference.is_exact)
        difference.factor = common_factor(expected, got, largest);
    return true;
}

bool ReferenceWatcher::is_group_size(double n) const {
    return std::any_of(
        engine_.teams().begin(), engine_.teams().end(), [&](const auto& team) {
            return team->size() > 1 && near(n, static_cast<double>(team->size()));
        });
}

/// Returns the class of mistake that the difference shows; empty if it shows none.
/// `reason` says why. `cure` is set if a better cure is known than that of the class.
std::string ReferenceWatcher::fault_of(const Difference& difference, std::string& reason,
                                       std::string& cure) const {
    if (difference.factor != 0) return fault_of_factor(difference.factor, reason, cure);
    reason = "elements differ by different factors";
    // If all rows have the same weight, there is no mean of unequal means.
    if (rows_weigh_alike_) return "";
    std::int64_t few = -1;
    std::int64_t many = -1;
    for (const Work& work : work_) {
        const std::int64_t rows = work.rows > 0 ? work.rows : work.rows_a_step;
        if (rows == 0) continue;
        few = few < 0 ? rows : std::min(few, rows);
        many = std::max(many, rows);
    }
    if (few != many) {
        reason += fmt::format(", and ranks had from {} to {} rows in a step", few, many);
        return "F28";
    }
    if (std::any_of(work_.begin(), work_.end(),
                    [](const Work& work) { return work.uneven; })) {
        reason += ", and a step's micro-batches had different numbers of rows";
        return "F28";
    }
    return "";
}

/// Returns the class of a difference by one factor, as fault_of does.
std::string ReferenceWatcher::fault_of_factor(double factor, std::string& reason,
                                              std::string& cure) const {
    reason = fmt::format("every element is {:.6g} times that of one device", factor);
    if (is_group_size(factor) || is_group_size(1 / factor)) {
        reason += fmt::format(", and {:.0f} ranks share the work",
                              factor > 1 ? factor : 1 / factor);
        return "F21";
    }
    for (const Work& work : work_) {
        const int losses = std::max(work.losses, work.losses_a_step);
        if (losses > 1 && near(factor, losses)) {
            reason += fmt::format(", and a step has {} micro-batches", losses);
            cure =
                "Each micro-batch counts as if it were the whole batch: divide its "
                "loss (its weight) by the number of micro-batches, too.";
            return "F27";
        }
        if (work.steps > 1 && near(factor, work.steps)) {
            reason += fmt::format(", and {} steps were made", work.steps);
            cure =
                "Every step adds to what the steps before have left: zero the "
                "gradients at the start of each step.";
            return "F27";
        }
    }
    return "";
}

Diagnosis ReferenceWatcher::explain(const Difference& difference,
                                    const std::vector<int>& ranks) const {
    std::string reason;
    std::string cure;
    std::string fault;
    if (difference.is_nan)
        reason = "one of the two values is not a number";
    else if (difference.is_exact)
        reason = "integers must be equal";
    else
        fault = fault_of(difference, reason, cure);
    Diagnosis diagnosis;
    if (!fault.empty()) {
        diagnosis = diagnosis_of(fault);
        if (!cure.empty()) diagnosis.cause = std::move(cure);
    } else {
        diagnosis.title = "not what one device gets";
        diagnosis.cause =
            "Several devices must get what one gets with all of the data: look for what "
            "each rank does with its part that one device does not do.";
    }
    const SourceLine at = report_of(ranks.front()).kept_at.at(difference.name);
    std::string made;
    std::vector<int> with_loss;
    for (std::size_t rank = 0; rank < work_.size(); ++rank)
        if (work_[rank].loss != nullptr) with_loss.push_back(static_cast<int>(rank));
    diagnosis.parties.push_back(
        party(ranks, fmt::format("keep('{}')", difference.name), at));
    if (!with_loss.empty()) {
        const Work& work = work_[with_loss.front()];
        made = fmt::format("; the loss is at {}", work.loss_at.text());
        diagnosis.parties.push_back(party(with_loss, work.loss, work.loss_at));
    }
    if (reduction_)
        made += fmt::format(", the last sum is {}", reduction_->text_with_line());
    diagnosis.sentence = fmt::format(
        "'{}', given to keep() at {} on {}, is not what one device gets: {}{}",
        difference.name, at.text(), ranks_text(ranks), reason, made);
    diagnosis.details.push_back(
        fmt::format("largest difference at {}: {:.9g}, and {:.9g} on one device",
                    difference.place, difference.got, difference.expected));
    return diagnosis;
}

/// Returns a mistake: ranks keep other values than one device does.
FaultError ReferenceWatcher::unlike(const std::string& name,
                                    const std::vector<int>& ranks,
                                    const std::string& how) const {
    const SourceLine at = report_of(ranks.front()).kept_at.at(name);
    return not_kept_alike(
        fmt::format("'{}', given to keep() at {} on {}, is not what one device keeps: {}",
                    name, at.text(), ranks_text(ranks), how),
        {party(ranks, fmt::format("keep('{}')", name), at)});
}

std::vector<int> ReferenceWatcher::keepers_of(const std::string& name) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < engine_.options().ranks; ++rank)
        if (report_of(rank).kept.contains(name)) ranks.push_back(rank);
    return ranks;
}

/// Throws FaultError unless ranks and one device keep things under the same names.
void ReferenceWatcher::require_partners(Lines RankReport::*lines,
                                        const char* call) const {
    std::map<std::string, std::vector<int>> keepers;
    for (int rank = 0; rank < engine_.options().ranks; ++rank)
        for (const auto& [name, at] : report_of(rank).*lines)
            keepers[name].push_back(rank);
    std::vector<std::string> alone;  // names that only one device keeps
    for (const auto& [name, at] : expected_.*lines)
        if (!keepers.contains(name)) alone.push_back(fmt::format("'{}'", name));
    for (const auto& [name, ranks] : keepers) {
        if ((expected_.*lines).contains(name)) continue;
        const SourceLine at = (report_of(ranks.front()).*lines).at(name);
        throw not_kept_alike(
            fmt::format("'{}', given to {}() at {} on {}, is not what one device keeps: "
                        "it keeps nothing of that name{}",
                        name, call, at.text(), ranks_text(ranks),
                        alone.empty() ? ""
                                      : fmt::format(", but {}, which no rank keeps",
                                                    fmt::join(alone, ", "))),
            {party(ranks, fmt::format("{}('{}')", call, name), at)});
    }
    for (const auto& [name, at] : expected_.*lines)
        if (!keepers.contains(name))
            throw not_kept_alike(
                fmt::format("'{}', which one device gives to {}() at {}, is kept by no "
                            "rank",
                            name, call, at.text()),
                {});
}

/// Throws FaultError if the shape or dtype of the whole is not that of one device.
void ReferenceWatcher::require_same_whole(const std::string& name) const {
    const HostTensor& expected = expected_.kept.at(name);
    std::vector<int> ranks;
    std::string shown;
    for (const int rank : keepers_of(name)) {
        const HostTensor& got = report_of(rank).kept.at(name);
        const Part part = report_of(rank).part_of(name);
        if (part.whole == expected.shape() && got.dtype() == expected.dtype()) continue;
        if (ranks.empty())
            shown = fmt::format("{}{} {}", holds_all(part) ? "" : "a part of ",
                                got.dtype(), part.whole);
        ranks.push_back(rank);
    }
    if (ranks.empty()) return;
    throw unlike(name, ranks,
                 fmt::format("it is {}, and one device keeps {} {}", shown,
                             expected.dtype(), expected.shape()));
}

/// Returns the shard, with zeros as its padding.
HostTensor without_padding(const HostTensor& shard, const Part& part) {
    HostTensor clean(shard.shape(), shard.dtype());
    const std::int64_t bytes = bytes_of(shard.dtype());
    each_run(part, [&](std::int64_t at, std::int64_t /*from*/, std::int64_t elements) {
        std::memcpy(clean.data() + at * bytes, shard.data() + at * bytes,
                    static_cast<std::size_t>(elements * bytes));
    });
    return clean;
}

/// Reports ranks that keep other values than one device does.
void ReferenceWatcher::require_same_values(const std::string& name) const {
    const HostTensor& expected = expected_.kept.at(name);
    std::vector<int> ranks;
    Difference shown;
    for (const int rank : keepers_of(name)) {
        const Part part = report_of(rank).part_of(name);
        Difference difference;
        difference.name = name;
        if (!differs(shard_of(expected, part),
                     without_padding(report_of(rank).kept.at(name), part),
                     largest_of(expected), difference))
            continue;
        difference.place = fmt::format("element {}", difference.at);
        if (!holds_all(part)) difference.place += fmt::format(" of rank {}'s part", rank);
        if (ranks.empty()) shown = difference;
        ranks.push_back(rank);
    }
    if (!ranks.empty()) report(explain(shown, ranks));
}

/// Throws FaultError if one device keeps an element that no rank keeps.
void ReferenceWatcher::require_all_kept(const std::string& name) const {
    const Shape& whole = expected_.kept.at(name).shape();
    std::vector<bool> is_kept(static_cast<std::size_t>(whole.elements()));
    const std::vector<int> ranks = keepers_of(name);
    for (const int rank : ranks)
        each_run(report_of(rank).part_of(name),
                 [&](std::int64_t /*at*/, std::int64_t from, std::int64_t elements) {
                     std::fill_n(is_kept.begin() + from, elements, true);
                 });
    const auto gap = std::find(is_kept.begin(), is_kept.end(), false);
    if (gap == is_kept.end()) return;
    throw unlike(
        name, ranks,
        fmt::format("no rank keeps element {} of {}", gap - is_kept.begin(), whole));
}

void ReferenceWatcher::run_ended() {
    require_partners(&RankReport::kept_at, "keep");
    require_partners(&RankReport::series_at, "keep_value");
    for (const auto& [name, expected] : expected_.kept) {
        require_same_whole(name);
        require_same_values(name);
        require_all_kept(name);
    }
}

}  // namespace

std::unique_ptr<Watcher> watch_reference(Engine& engine) {
    return std::make_unique<ReferenceWatcher>(engine, run_reference(engine.options()));
}

}  // namespace lockstep::sim
