#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/check/parameters.hpp"
#include "sim/check/watcher.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::sim {

class Engine;
class Layouts;

/// F23 by values: one parameter on several ranks (of one name, shape and bits, and not
/// one number throughout), which steps with gradients of its own on each.
///
/// That alone may be meant: local SGD, or experts that began alike. So it is a mistake
/// only where
///   - one rank looks it up as an embedding and another multiplies by it: tied weights;
///   - or the same ranks step other parameters, in the same step, with gradients reduced
///     over a team of theirs, and exchange nothing else than gradients: data parallelism
///     that forgot one.
/// Compared when all ranks that update have done a step.
class OwnGradientWatcher final : public Watcher {
  public:
    OwnGradientWatcher(const Engine& engine, const Layouts& layouts);

    void launched(Batch& batch) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void ended(int rank) override;
    void quiet() override;
    void run_ended() override { quiet(); }

    /// One update of a named parameter.
    struct Update {
        int rank;
        std::uint64_t bits;  ///< of the parameter, before
        std::uint64_t gradient_bits;
        bool one_number;      ///< throughout the parameter
        bool embeds;          ///< has been looked up in
        bool projects;        ///< has been a factor of a product
        const Team* reduced;  ///< over which the gradient was; null: none known
        HostTensor gradient;  ///< where not reduced
        const char* name;
        SourceLine at;
    };

  private:
    struct Use {
        bool embeds = false;
        bool projects = false;
        std::uint64_t updates = 0;
    };
    /// Buffers that were exchanged, not known to be gradients; each once.
    class Exchanges {
      public:
        void add(const Team* team, const Tensor& buffer);
        /// It was a gradient.
        void erase(const Tensor& gradient);
        /// Another tensor may stand there next.
        void freed(const Storage& storage) noexcept;
        /// Takes all of the other's.
        void merge(Exchanges& more);
        void add_teams_to(std::set<const Team*>& teams) const;
        void clear();

      private:
        using Part = std::pair<const Team*, ByteRange>;
        std::unordered_map<const Storage*, std::vector<Part>> live_;
        std::set<const Team*> gone_;
    };
    struct RankSteps {
        std::map<std::string, Use> uses;
        std::uint64_t begun = 0;
        bool ended = false;
        Exchanges before;  ///< the last update
        Exchanges since;
    };
    /// What all ranks did in one step.
    struct Step {
        std::map<std::string, std::vector<Update>> updates;
        std::map<int, std::set<const Team*>> exchanged;  ///< by rank; not gradients
    };

    RankSteps& of(int rank) { return ranks_[rank]; }
    void note_use(int rank, const DeviceOperation& operation);
    void note_update(int rank, const DeviceOperation& operation);
    void begin_step(int rank);
    bool all_have_done(std::uint64_t step) const;
    void evaluate(std::uint64_t number, const Step& step) const;
    const Team* forgotten_by(const Step& step, const std::string& name, const Update& one,
                             const Update& other) const;

    const Engine& engine_;
    const Layouts& layouts_;
    std::vector<RankSteps> ranks_;
    std::map<std::uint64_t, Step> steps_;  ///< by number, from 1
    bool noted_ = false;
};

}  // namespace lockstep::sim
