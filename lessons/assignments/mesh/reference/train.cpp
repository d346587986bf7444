#include <algorithm>
#include <utility>

#include "mesh.hpp"
#include "src/comm/expect.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

using namespace lockstep;

namespace {

/// The values and gradients of several parameters in flat tensors, with zeros at the end.
/// Each rank of `replicas` updates one range.
struct Flat {
    Tensor values;
    Tensor gradients;
    std::unique_ptr<Parameter> range{};  ///< this rank's range
    bool shared_out = false;             ///< whether tp shards these parameters
};

Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, int ranks) {
    const MemoryScope scope(device, member == &Parameter::value
                                        ? MemoryCategory::parameters
                                        : MemoryCategory::gradients);
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += parameter->shape().elements();
    const std::int64_t padded = (elements + ranks - 1) / ranks * ranks;
    Tensor flat = device.zeros({padded}, parameters.front()->dtype());
    std::int64_t begin = 0;
    for (Parameter* parameter : parameters) {
        const std::int64_t count = parameter->shape().elements();
        parameter->*member = flat.slice(begin, count).reshaped(parameter->shape());
        begin += count;
    }
    return flat;
}

Tensor own_range(const Tensor& flat, const Communicator& replicas) {
    const std::int64_t count = flat.elements() / replicas.size();
    return flat.slice(replicas.rank() * count, count);
}

Flat make_flat(Device& device, const Communicator& replicas,
               const std::vector<Parameter*>& parameters, bool shared_out) {
    Flat flat{make_flat(device, parameters, &Parameter::value, replicas.size()),
              make_flat(device, parameters, &Parameter::gradient, replicas.size())};
    flat.shared_out = shared_out;
    for (const Parameter* parameter : parameters)
        parameter->fill_initial();
    flat.range = std::make_unique<Parameter>(
        shared_out ? "range of parts" : "range of what is alike",
        own_range(flat.values, replicas), own_range(flat.gradients, replicas));
    return flat;
}

/// Makes one Flat for parameters that tp shards, and one for those that tp replicates.
std::vector<Flat> make_flats(Device& device, const Communicator& replicas,
                             Module& model) {
    std::vector<Parameter*> all = model.parameters();
    const auto others =
        std::stable_partition(all.begin(), all.end(), [](const Parameter* parameter) {
            return std::ranges::any_of(parameter->placements, &Placement::is_sharded);
        });
    std::vector<Flat> flats;
    flats.push_back(make_flat(device, replicas, {all.begin(), others}, true));
    flats.push_back(make_flat(device, replicas, {others, all.end()}, false));
    return flats;
}

class OnMesh {
  public:
    OnMesh(Rank& rank, const Job& job, const Axes& axes)
        : device_(rank.device()),
          job_(job),
          mesh_(rank.world(), axes),
          replicas_(mesh_.plane({"dp", "cp"})),
          tensor_(device_, mesh_["tp"]),
          kit_(context_parallel(tensor_parallel(job.kit, tensor_), mesh_["cp"],
                                ContextMethod::ring_attention, TokenOrder::zigzag)),
          gpt_(make_gpt({device_, job.dtype, job.seed, "", /*allocate=*/false}, job.sizes,
                        kit_)),
          flats_(make_flats(device_, replicas_, *gpt_)) {
        std::vector<Parameter*> ranges;
        for (const Flat& flat : flats_) {
            ranges.push_back(flat.range.get());
            if (!flat.shared_out)
                declare_replicas(mesh_["tp"], flat.range->value, flat.range->name());
        }
        optimizer_ = job.optimizer(ranges);
    }

    Trained train() {
        Trained trained;
        for (const std::vector<Sequence>& batch : job_.batches)
            step(batch, trained);
        for (const Parameter* parameter : gpt_->parameters())
            trained.weights.emplace(parameter->name(), parameter->value);
        return trained;
    }

  private:
    void step(const std::vector<Sequence>& batch, Trained& trained) {
        const Tensor loss = forward_backward(batch);
        replicas_.all_reduce(loss).wait();
        for (const Flat& flat : flats_)
            replicas_.reduce_scatter(flat.range->gradient, flat.gradients).wait();
        if (job_.most_norm > 0) {
            trained.squares.push_back(squared_norm());
            clip(trained.squares.back());
        }
        {
            const PhaseScope phase(device_, Phase::update);
            optimizer_->step();
        }
        for (const Flat& flat : flats_)
            replicas_.all_gather(flat.values, flat.range->value).wait();
        trained.losses.push_back(loss);
    }

    /// Ranks along dp have different sequences. Ranks along cp have different tokens of a
    /// sequence, ranks along tp the same tokens. Returns this rank's share of the loss.
    Tensor forward_backward(const std::vector<Sequence>& batch) {
        std::vector<const Sequence*> own;
        const auto ranks = static_cast<std::size_t>(mesh_.size("dp"));
        const auto first = static_cast<std::size_t>(mesh_.coordinate("dp"));
        for (std::size_t i = first; i < batch.size(); i += ranks)
            own.push_back(&batch[i]);
        const double weight =
            1.0 / (static_cast<double>(batch.size()) * mesh_.size("cp"));
        zero_gradients(*gpt_, static_cast<int>(own.size()));
        Tensor loss = device_.zeros({1}, computed_in(job_.dtype));
        for (int i = 0; const Sequence* sequence : own)
            device_.add(loss, forward_backward(*sequence, weight, i++));
        return loss;
    }
    Tensor forward_backward(const Sequence& sequence, double weight, int index) {
        const Tensor tokens = device_.upload(dealt_rows(sequence.tokens, kit_.tokens));
        const Tensor next = device_.upload(dealt_rows(sequence.next, kit_.tokens));
        Saved saved;
        LossResult result;
        {
            const PhaseScope phase(device_, Phase::forward, index);
            const Tensor logits = gpt_->forward(tokens, saved);
            result = kit_.loss(job_.sizes)(device_, logits, next, weight);
        }
        const PhaseScope phase(device_, Phase::backward, index);
        gpt_->backward(result.gradient, saved);
        return result.loss;
    }

    /// Counts each number of the model once: ranks along dp and cp have different ranges,
    /// and parameters that tp replicates count only on the first rank of tp.
    Tensor squared_norm() {
        Tensor squares = device_.zeros({1}, computed_in(job_.dtype));
        for (const Flat& flat : flats_)
            if (flat.shared_out || mesh_.coordinate("tp") == 0)
                device_.sum_of_squares(squares, flat.range->gradient);
        mesh_.world().all_reduce(squares).wait();
        return squares;
    }

    void clip(const Tensor& squares) {
        const Tensor factor = device_.empty({1}, squares.dtype());
        device_.clip_factor(factor, squares, job_.most_norm);
        for (const Flat& flat : flats_)
            device_.scale(flat.range->gradient, factor);
    }

    Device& device_;
    const Job& job_;
    Mesh mesh_;
    Communicator& replicas_;
    TensorParallel tensor_;
    GptKit kit_;
    std::unique_ptr<Sequential> gpt_;
    std::vector<Flat> flats_;
    std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

Trained train(Rank& rank, const Job& job, const Axes& axes) {
    return OnMesh(rank, job, axes).train();
}
