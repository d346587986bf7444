#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/gradient_terms.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/core/bits.hpp"
#include "src/core/host_tensor.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// F23 by values: several ranks have the same parameter (equal name, shape and bits; its
/// elements are not all equal), but each rank updates it with its own gradient.
///
/// That may be on purpose: local SGD, or experts that started with the same values. So it
/// is a mistake only if
///   - one rank uses it as an embedding, and another rank multiplies by it: tied weights;
///   - or, in the same step, the same ranks update other parameters with gradients that
///     were reduced over one of their teams, and exchange nothing but gradients: data
///     parallelism that forgot one gradient;
///   - or the ranks compute together (in this step they take part in sums or gathers of
///     what is not a gradient, and reduce no other gradient), no rank sends the
///     parameter's values, and up to the end of the run they are never equal again.
/// Ranks are compared when all ranks with updates have done the step.
class OwnGradientWatcher final : public Watcher {
  public:
    OwnGradientWatcher(const Engine& engine, const Layouts& layouts,
                       const TermsTracker& terms);

    void launched(Launch& launch) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void ended(int rank) override;
    void quiet() override;
    void run_ended() override;

    /// One update of a named parameter.
    struct Update {
        int rank;
        std::uint64_t bits;  ///< of the parameter, before the update
        std::uint64_t gradient_bits;
        bool one_number;      ///< the parameter is one number throughout
        bool embeds;          ///< an embedding has read it
        bool projects;        ///< it was a factor of a product
        const Team* reduced;  ///< the team that reduced the gradient, if known
        HostTensor gradient;  ///< if not reduced
        KnownTerms terms;     ///< of the gradient
        const char* name;
        SourceLine at;
        std::string part;  ///< of a whole, if its label names one
        bool is_vector;
    };

  private:
    struct Use {
        bool embeds = false;
        bool projects = false;
        std::uint64_t updates = 0;
    };
    /// A team, and whether it has summed or gathered, or only moved.
    using Meet = std::pair<const Team*, bool>;
    /// The exchanged buffers that are not known to be gradients, each listed once.
    class Exchanges {
      public:
        void add(Meet meet, const Tensor& buffer);
        /// Removes a buffer, because it was a gradient.
        void erase(const Tensor& gradient);
        /// Keeps the teams of a freed buffer: another tensor may get its memory.
        void freed(const Storage& storage) noexcept;
        /// Moves all exchanges from `more` to this.
        void merge(Exchanges& more);
        void add_teams_to(std::set<Meet>& teams) const;
        void clear();

      private:
        using Part = std::pair<Meet, ByteRange>;
        std::unordered_map<const Storage*, std::set<Part>> live_;
        std::set<Meet> gone_;
    };
    struct RankSteps {
        std::map<std::string, Use> uses;
        /// The parameters that the rank has updated, with their names.
        std::unordered_map<const Storage*, std::string> stepped;
        std::uint64_t begun = 0;
        bool ended = false;
        Exchanges before;  ///< before the last update
        Exchanges since;
    };
    /// Two ranks' updates by which their equal parameters parted.
    struct Parted {
        std::uint64_t step;
        Update one;
        Update other;
        const Team* together;  ///< they compute together in this team
    };
    /// All ranks' updates and exchanges in one step.
    struct Step {
        std::map<std::string, std::vector<Update>> updates;
        std::map<int, std::set<Meet>> exchanged;  ///< by rank; not gradients
    };

    RankSteps& steps_of(int rank) { return ranks_[rank]; }
    void note_use(int rank, const DeviceOperation& operation);
    void note_update(int rank, const DeviceOperation& operation);
    void begin_step(int rank);
    bool all_have_done(std::uint64_t step) const;
    void evaluate(std::uint64_t number, const Step& step);
    void compare(std::uint64_t number, const Step& step, const std::string& name,
                 const std::vector<const Update*>& updates) const;
    void note_parted(std::uint64_t number, const Step& step, const std::string& name,
                     const std::vector<const Update*>& updates);
    const Team* reduces_others(const Step& step, const std::string& name,
                               const Update& one, const Update& other) const;
    const Team* computes_with(const Step& step, const Update& one,
                              const Update& other) const;
    const Team* forgotten_by(const Step& step, const std::string& name, const Update& one,
                             const Update& other) const;

    const Engine& engine_;
    const Layouts& layouts_;
    const TermsTracker& terms_;
    std::vector<RankSteps> ranks_;
    std::map<std::uint64_t, Step> steps_;   ///< by number, from 1
    std::map<std::string, Parted> parted_;  ///< by name
    std::set<std::string> shared_;  ///< parameters that were equal again, or are sent
    bool noted_ = false;
};

void OwnGradientWatcher::Exchanges::add(Meet meet, const Tensor& buffer) {
    live_[buffer.storage()].insert({meet, ByteRange::of(buffer)});
}

void OwnGradientWatcher::Exchanges::erase(const Tensor& gradient) {
    const auto found = live_.find(gradient.storage());
    if (found == live_.end()) return;
    std::erase_if(found->second, [&](const Part& part) {
        return part.second.overlaps(ByteRange::of(gradient));
    });
    if (found->second.empty()) live_.erase(found);
}

void OwnGradientWatcher::Exchanges::freed(const Storage& storage) noexcept {
    const auto found = live_.find(&storage);
    if (found == live_.end()) return;
    for (const auto& [team, range] : found->second)
        gone_.insert(team);
    live_.erase(found);
}

void OwnGradientWatcher::Exchanges::merge(Exchanges& more) {
    for (auto& [storage, parts] : more.live_)
        live_[storage].merge(parts);
    gone_.merge(more.gone_);
    more.clear();
}

void OwnGradientWatcher::Exchanges::add_teams_to(std::set<Meet>& teams) const {
    for (const auto& [storage, parts] : live_)
        for (const auto& [team, range] : parts)
            teams.insert(team);
    teams.insert(gone_.begin(), gone_.end());
}

void OwnGradientWatcher::Exchanges::clear() {
    live_.clear();
    gone_.clear();
}

OwnGradientWatcher::OwnGradientWatcher(const Engine& engine, const Layouts& layouts,
                                       const TermsTracker& terms)
    : engine_(engine),
      layouts_(layouts),
      terms_(terms),
      ranks_(static_cast<std::size_t>(engine.options().ranks)) {}

void OwnGradientWatcher::launched(Launch& launch) {
    constexpr std::int64_t kFigures = 4;  // so few elements are a loss or a count
    RankSteps& mine = steps_of(launch.rank);
    for (const Posted& posted : launch.posted) {
        const CommOperation& operation = posted.operation;
        // What a root scatters, broadcasts or gathers is not a gradient.
        const VerbFacts verb = facts_of(operation.verb);
        if (verb.has_root() && !verb.reduces) continue;
        const Tensor& buffer = operation.output ? operation.output : operation.input;
        if (buffer && std::max(buffer.elements(), operation.input.elements()) > kFigures)
            mine.since.add({launch.team, verb.reduces || verb.gathers()}, buffer);
        for (const Tensor* value : {&operation.input, &operation.output}) {
            const auto stepped =
                *value ? mine.stepped.find(value->storage()) : mine.stepped.end();
            if (stepped != mine.stepped.end()) shared_.insert(stepped->second);
        }
    }
}

void OwnGradientWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation))
        note_update(rank, operation);
    else
        note_use(rank, operation);
}

void OwnGradientWatcher::note_use(int rank, const DeviceOperation& operation) {
    const bool embeds = operation.is<ops::Embedding>() || operation.is<ops::TakeRows>();
    if (!embeds && !operation.is<ops::Matmul>()) return;
    for (const Tensor* read : operation.reads) {
        const std::string& label = read->label();
        if (label.empty()) continue;
        Use& use = steps_of(rank).uses[label];
        (embeds ? use.embeds : use.projects) = true;
    }
}

void OwnGradientWatcher::note_update(int rank, const DeviceOperation& operation) {
    const Tensor& parameter = parameter_of(operation);
    const Tensor& gradient = gradient_of(operation);
    RankSteps& mine = steps_of(rank);
    mine.before.erase(gradient);
    mine.since.erase(gradient);
    const std::string& label = parameter.label();
    if (label.empty() || parameter.bytes() == 0) return;
    Use& use = mine.uses[label];
    if (++use.updates > mine.begun) begin_step(rank);
    mine.before.merge(mine.since);
    mine.stepped[parameter.storage()] = label;

    const HostTensor values = values_of(parameter);
    const Layout layout = layouts_.layout_of(rank, gradient);
    const Team* const reduced = layout.reduced ? layout.team() : nullptr;
    steps_[use.updates].updates[label].push_back(
        {rank, hash_of_bits(values.data(), values.bytes()), hash_of(gradient),
         is_one_number(values), use.embeds, use.projects, reduced,
         reduced == nullptr ? values_of(gradient) : HostTensor(),
         terms_.terms_of(rank, gradient), operation.name, operation.at,
         parameter.labelled()->part, parameter.shape().dimensions() < 2});
    noted_ = true;
}

/// Begins a step. Exchanges up to the last update belong to the previous step.
void OwnGradientWatcher::begin_step(int rank) {
    RankSteps& mine = steps_of(rank);
    mine.before.add_teams_to(steps_[mine.begun].exchanged[rank]);
    mine.before.clear();
    ++mine.begun;
}

void OwnGradientWatcher::freed(int rank, const Storage& storage) noexcept {
    steps_of(rank).stepped.erase(&storage);
    steps_of(rank).before.freed(storage);
    steps_of(rank).since.freed(storage);
}

void OwnGradientWatcher::ended(int rank) {
    RankSteps& mine = steps_of(rank);
    mine.ended = true;
    if (mine.begun > 0)
        for (const Exchanges* exchanges : {&mine.before, &mine.since})
            exchanges->add_teams_to(steps_[mine.begun].exchanged[rank]);
    noted_ = true;
}

using Update = OwnGradientWatcher::Update;

bool have_both(const Team* team, int one, int other) {
    return team != nullptr && team->has(one) && team->has(other);
}

bool have_values(const Update& one, const Update& other) {
    return one.gradient.elements() > 0 &&
           one.gradient.shape() == other.gradient.shape() &&
           one.gradient.dtype() == other.gradient.dtype();
}

/// Returns whether the parameters are equal, the gradients differ, and neither gradient
/// was reduced over both ranks.
bool are_own(const Update& one, const Update& other) {
    return one.bits == other.bits && one.gradient_bits != other.gradient_bits &&
           !have_both(one.reduced, one.rank, other.rank) &&
           !have_both(other.reduced, one.rank, other.rank) &&
           (!have_values(one, other) ||
            differ_by_more_than_rounding(one.gradient, other.gradient));
}

bool are_tied(const Update& one, const Update& other) {
    const auto only = [](const Update& update) {
        return std::make_pair(update.embeds, update.projects);
    };
    return (only(one) == std::make_pair(true, false) &&
            only(other) == std::make_pair(false, true)) ||
           (only(one) == std::make_pair(false, true) &&
            only(other) == std::make_pair(true, false));
}

using Updates = std::vector<const Update*>;

/// Returns "Its gradient is one on ranks 1, 3, another on rank 7, another on rank 15",
/// for all ranks that hold the same parameter. Empty if fewer than three ranks hold it.
std::string gradients_text(const Updates& all, const Update& one) {
    Updates same = all;
    std::erase_if(same, [&](const Update* update) { return update->bits != one.bits; });
    const auto sides = sides_of(same, [](const Update* a, const Update* b) {
        return a->gradient_bits == b->gradient_bits;
    });
    constexpr std::size_t kListed = 8;
    if (same.size() < 3 || sides.size() > kListed) return "";
    std::string text;
    for (const Updates& side : sides) {
        std::vector<int> ranks;
        for (const Update* update : side)
            ranks.push_back(update->rank);
        text += fmt::format("{} on {}", text.empty() ? " one" : ", another",
                            ranks_text(ranks));
    }
    return fmt::format("Its gradient is{}.", text);
}

/// `all` are the step's updates of parameters with this name.
Diagnosis explain(const std::string& name, const Updates& all, const Update& one,
                  const Update& other, std::uint64_t step, const Team* over,
                  bool for_good = false) {
    const bool known = have_values(one, other);
    const std::int64_t first =
        known ? difference_in_bits(one.gradient, other.gradient).first : 0;
    const auto gradient = [&](const Update& update) {
        return fmt::format(
            "{} on rank {} (at {})",
            known ? value_text(update.gradient, first) : std::string("one"), update.rank,
            update.at.text());
    };
    const std::string element =
        known ? fmt::format("element {} of the gradient",
                            element_text(one.gradient.shape(), first))
              : std::string("the gradient");
    Diagnosis diagnosis = diagnosis_of("F23");
    if (over != nullptr) {
        diagnosis.communicator = over->name;
        diagnosis.members = over->ranks;
    }
    const std::string why =
        for_good ? fmt::format(
                       "they compute together in {}, and the parameters are "
                       "never equal again",
                       over->name)
        : over == nullptr
            ? "one looks it up as an embedding and the other multiplies by it"
            : fmt::format("their other gradients are reduced over {}", over->name);
    diagnosis.sentence = fmt::format(
        "in step {} ranks {} and {} hold the same {}, but each updates it with its own "
        "gradient, although {}: {} is {}, but {}",
        step, one.rank, other.rank, name, why, element, gradient(one),
        known ? gradient(other)
              : fmt::format("another on rank {} (at {})", other.rank, other.at.text()));
    const std::string lack =
        terms_text({{one.rank}, one.terms}, {{other.rank}, other.terms});
    if (!lack.empty()) diagnosis.sentence += "; " + lack;
    if (for_good)
        diagnosis.cause = fmt::format(
            "Replicas on ranks that share one computation need the whole gradient: sum "
            "it over {} before the step (with sequence parallelism each rank has seen "
            "only its own tokens). If they are no replicas, give them different names.",
            over->name);
    if (over == nullptr)
        diagnosis.cause =
            "Tied weights need the terms of both ends, on every replica: before the "
            "update, sum the gradient over the two ends of each line of stages. Look for "
            "a condition, or a list of groups, that leaves a line of stages out.";
    if (std::string gradients = gradients_text(all, one); !gradients.empty())
        diagnosis.details.push_back(std::move(gradients));
    for (const Update* update : {&one, &other})
        diagnosis.parties.push_back(party({update->rank},
                                          fmt::format("{} of {}", update->name, name),
                                          update->at, "its own gradient"));
    return diagnosis;
}

bool OwnGradientWatcher::all_have_done(std::uint64_t step) const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const RankSteps& rank) {
        return rank.begun == 0 || rank.ended || rank.begun > step;
    });
}

void OwnGradientWatcher::quiet() {
    if (!noted_) return;
    noted_ = false;
    constexpr std::size_t kPending = 8;  // some rank steps far more often than another
    while (!steps_.empty()) {
        const auto oldest = steps_.begin();
        const bool done = all_have_done(oldest->first);
        if (!done && steps_.size() <= kPending) return;
        if (done && oldest->first > 0) {
            const Step step = std::move(oldest->second);
            const std::uint64_t number = oldest->first;
            steps_.erase(oldest);
            evaluate(number, step);
        } else {
            steps_.erase(oldest);
        }
    }
}

void OwnGradientWatcher::run_ended() {
    quiet();
    for (const auto& [name, parted] : parted_)
        if (!shared_.contains(name))
            report(explain(name, {}, parted.one, parted.other, parted.step,
                           parted.together, true));
}

/// Returns a team in which both ranks sum or gather what is no gradient; null if there is
/// none.
const Team* OwnGradientWatcher::computes_with(const Step& step, const Update& one,
                                              const Update& other) const {
    const auto teams = step.exchanged.find(one.rank);
    if (teams == step.exchanged.end()) return nullptr;
    const auto team = std::ranges::find_if(teams->second, [&](const Meet& meet) {
        return meet.second && have_both(meet.first, one.rank, other.rank);
    });
    return team == teams->second.end() ? nullptr : team->first;
}

/// Notes two ranks whose equal parameters take different steps, and forgets them if their
/// parameters are equal again. `updates` are those of one parameter's name.
void OwnGradientWatcher::note_parted(std::uint64_t number, const Step& step,
                                     const std::string& name,
                                     const std::vector<const Update*>& updates) {
    if (const auto known = parted_.find(name); known != parted_.end()) {
        const auto one =
            std::ranges::find(updates, known->second.one.rank, &Update::rank);
        const auto other =
            std::ranges::find(updates, known->second.other.rank, &Update::rank);
        if (one != updates.end() && other != updates.end() &&
            (*one)->bits == (*other)->bits)
            shared_.insert(name);
        return;
    }
    for (std::size_t i = 1; i < updates.size(); ++i) {
        const Update &one = *updates.front(), &other = *updates[i];
        // Ranks often start with zeros in their own parts of a bias.
        const bool is_bias = one.one_number && one.is_vector;
        if (one.part != other.part || is_bias || !are_own(one, other)) continue;
        // If they reduce other gradients, this is probably their own part of a whole.
        if (reduces_others(step, name, one, other) != nullptr) continue;
        if (const Team* const together = computes_with(step, one, other)) {
            parted_.emplace(name, Parted{number, one, other, together});
            return;
        }
    }
}

void OwnGradientWatcher::evaluate(std::uint64_t number, const Step& step) {
    for (const auto& [name, noted] : step.updates) {
        if (noted.size() < 2) continue;
        std::vector<const Update*> updates;
        for (const Update& update : noted)
            updates.push_back(&update);
        std::ranges::stable_sort(updates, {}, &Update::rank);
        note_parted(number, step, name, updates);
        std::erase_if(updates, [](const Update* update) { return update->one_number; });
        compare(number, step, name, updates);
    }
}

/// Compares each rank's update of a parameter with the first rank's that held the same.
void OwnGradientWatcher::compare(std::uint64_t number, const Step& step,
                                 const std::string& name,
                                 const std::vector<const Update*>& updates) const {
    for (std::size_t i = 1; i < updates.size(); ++i) {
        const Update& other = *updates[i];
        const Update& one = **std::ranges::find(updates, other.bits, &Update::bits);
        if (!are_own(one, other)) continue;
        const bool tied = are_tied(one, other);
        const Team* const over = tied ? nullptr : forgotten_by(step, name, one, other);
        if (tied || over != nullptr)
            report(explain(name, updates, one, other, number, over));
    }
}

/// Returns the team over which both ranks reduced another gradient in this step, if they
/// exchange nothing but gradients; else null.
const Team* OwnGradientWatcher::forgotten_by(const Step& step, const std::string& name,
                                             const Update& one,
                                             const Update& other) const {
    const auto exchanges = [&](const Update& update) {
        const auto teams = step.exchanged.find(update.rank);
        return teams != step.exchanged.end() &&
               std::ranges::any_of(teams->second, [&](const Meet& meet) {
                   return have_both(meet.first, one.rank, other.rank);
               });
    };
    return exchanges(one) || exchanges(other) ? nullptr
                                              : reduces_others(step, name, one, other);
}

/// Returns the team over which both ranks reduced another gradient in this step; else
/// null.
const Team* OwnGradientWatcher::reduces_others(const Step& step, const std::string& name,
                                               const Update& one,
                                               const Update& other) const {
    const auto of_both = [&](const Update& update) {
        return (update.rank == one.rank || update.rank == other.rank) &&
               have_both(update.reduced, one.rank, other.rank);
    };
    for (const auto& [label, updates] : step.updates) {
        if (label == name) continue;
        const Team* team = nullptr;
        for (const Update& update : updates) {
            if (!of_both(update)) continue;
            if (team == update.reduced) return team;
            team = update.reduced;
        }
    }
    return nullptr;
}

}  // namespace

std::unique_ptr<Watcher> watch_own_gradients(Engine& engine, const Layouts& layouts,
                                             const TermsTracker& terms) {
    return std::make_unique<OwnGradientWatcher>(engine, layouts, terms);
}

}  // namespace lockstep::sim
