#include <algorithm>

#include "mesh.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/cost/collectives.hpp"

using namespace lockstep;

namespace {

/// Estimates the memory of a device in a step of train(), and the time of the step.
/// Tensors are bf16.
class Estimate {
  public:
    Estimate(const Setting& setting, const Axes& axes)
        : spec_(setting.cluster), shape_(axes), ranks_of_tp_(shape_.size("tp")) {
        const GptSizes& sizes = setting.sizes;
        const BlockSizes& block = sizes.block;
        layers_ = static_cast<double>(sizes.layers);
        hidden_ = static_cast<double>(block.hidden);
        inner_ = static_cast<double>(block.inner_columns());
        keys_ = 2 * hidden_ * static_cast<double>(block.attention().key_heads()) /
                static_cast<double>(block.heads);
        logits_ = static_cast<double>(sizes.vocabulary);
        tokens_ = static_cast<double>(sizes.context);
        own_tokens_ = tokens_ / shape_.size("cp");
        own_sequences_ = (setting.sequences + shape_.size("dp") - 1) / shape_.size("dp");
        // Norms, the biases of narrow layers, and positions are not sharded.
        const double alike = (6 * layers_ + 2 + tokens_) * hidden_;
        parameters_ =
            (static_cast<double>(sizes.parameters()) - alike) / ranks_of_tp_ + alike;
    }

    /// Adds up values and gradients; this rank's share of f32 masters and two moments;
    /// the activations of one sequence, some of them sharded by tp; and the temporary
    /// tensors of the last layer or the logits.
    double bytes() const {
        const double replicas = shape_.size("dp") * shape_.size("cp");
        const double saved =
            4 * hidden_ + (2 * hidden_ + keys_ + 2 * inner_) / ranks_of_tp_;
        const double for_a_moment =
            std::max(4 * hidden_ + (3 * keys_ + 3 * inner_) / ranks_of_tp_,
                     4 * logits_ / ranks_of_tp_);
        return 4 * parameters_ + 12 * parameters_ / replicas +
               2 * own_tokens_ * (layers_ * saved + for_a_moment);
    }

    /// Adds up the time of the rank's sequences and of messages for gradients and values.
    double seconds() const {
        return own_sequences_ * (layers_ * layer_seconds() + head_seconds()) +
               collective(Verb::reduce_scatter, parameters_, {"dp", "cp"}) +
               collective(Verb::all_gather, parameters_, {"dp", "cp"});
    }

  private:
    double layer_seconds() const {
        const double wide = product_seconds(hidden_, hidden_ + keys_ + inner_);
        const double narrow = product_seconds(hidden_ + inner_, hidden_);
        // A query sees half of the keys. A key and column take 4 flops, in backward 10.
        const double of_pairs =
            own_tokens_ * tokens_ / 2 * 14 * hidden_ / ranks_of_tp_ / spec_.flops_bf16;
        const double moved = 40 * hidden_ + 25 * (hidden_ + inner_) / ranks_of_tp_;
        // Two all-reduces each in forward and backward; products hide those of backward.
        const double sum = collective(Verb::all_reduce, own_tokens_ * hidden_, {"tp"});
        return 3 * (wide + narrow) + of_pairs + move_seconds(moved) + 4 * sum -
               std::min(2 * sum, wide) + ring_seconds(of_pairs);
    }
    double head_seconds() const {
        return 3 * product_seconds(hidden_, logits_) +
               move_seconds(20 * logits_ / ranks_of_tp_) +
               2 * collective(Verb::all_reduce, own_tokens_ * hidden_, {"tp"});
    }
    double product_seconds(double in, double out) const {
        return 2 * own_tokens_ * in * out / ranks_of_tp_ / spec_.flops_bf16;
    }
    /// Returns the time to read and write `columns` columns of each token.
    double move_seconds(double columns) const {
        return 2 * own_tokens_ * columns / spec_.memory_bytes_per_second;
    }
    /// Returns the ring's time that attention does not hide, forward and backward.
    double ring_seconds(double of_pairs) const {
        const std::vector<int> line = shape_.line(0, "cp");
        const auto hops = static_cast<double>(line.size() - 1);
        const double hop = 2 * own_tokens_ * keys_ / ranks_of_tp_ /
                           spec_.link(line.front(), line.back()).bytes_per_second;
        return std::max(0.0, hops * hop - of_pairs * 4 / 14) +
               std::max(0.0, 3 * hops * hop - of_pairs * 10 / 14);
    }
    double collective(Verb verb, double elements,
                      const std::vector<std::string>& axes) const {
        const std::vector<int> ranks = shape_.plane(0, axes);
        const auto size = static_cast<int>(ranks.size());
        if (size == 1) return 0;
        if (verb != Verb::all_reduce) elements /= size;  // count of a rank's own range
        const CollectiveCall call{verb, static_cast<std::int64_t>(elements), 2, size};
        constexpr double kPicosecond = 1e-12;
        return static_cast<double>(collective_time(call, spec_, ranks)) * kPicosecond;
    }

    const ClusterSpec& spec_;
    MeshShape shape_;
    double ranks_of_tp_;
    double layers_, hidden_, inner_, logits_;
    double keys_;  ///< columns of keys and values together
    double tokens_, own_tokens_;
    int own_sequences_;
    double parameters_;  ///< number of parameters on a rank
};

/// Returns all meshes that can shard everything, in all orders.
std::vector<Axes> possible_meshes(const Setting& setting) {
    const BlockSizes& block = setting.sizes.block;
    std::vector<Axes> all;
    for (int tp = 1; tp <= setting.devices; ++tp)
        for (int cp = 1; tp * cp <= setting.devices; ++cp) {
            const int dp = setting.devices / (tp * cp);
            if (dp * cp * tp != setting.devices || dp > setting.sequences ||
                block.heads % tp != 0 || block.attention().key_heads() % tp != 0 ||
                setting.sizes.context % (std::int64_t{2} * cp) != 0)
                continue;
            Axes axes{{"cp", cp}, {"dp", dp}, {"tp", tp}};
            do {
                all.push_back(axes);
            } while (std::ranges::next_permutation(axes, {}, &Mesh::Axis::name).found);
        }
    return all;
}

}  // namespace

Axes choose(const Setting& setting) {
    constexpr double kMargin = 1.03;  // the estimate may be too low by 3 %
    const auto memory = static_cast<double>(setting.cluster.memory_bytes);
    Axes best;
    double fastest = 0;
    for (const Axes& axes : possible_meshes(setting)) {
        const Estimate estimate(setting, axes);
        if (estimate.bytes() * kMargin > memory) continue;
        const double seconds = estimate.seconds();
        if (!best.empty() && seconds >= fastest) continue;
        best = axes;
        fastest = seconds;
    }
    return best;
}
