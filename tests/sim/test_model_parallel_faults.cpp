// A GPT with tensor-parallel regions and one mistake, and the class under which the
// mistake is found.

#include <cmath>

#include "src/comm/mesh.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"
#include "tests/sim/watched.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kVocabulary = 13;

struct Mistake {
    bool without_f = false;
    bool without_g = false;
    bool own_means = false;   ///< adds up the replicas' own means
    bool other_seed = false;  ///< rank 1 draws replicated parameters with another seed
    bool by_sequence = false;
    bool forgets_completion = false;
    NormKind norm = NormKind::layer_norm;
    MlpKind mlp = MlpKind::gelu;
};

template <typename Base>
class Regions : public Base {
  public:
    Regions(Device& device, Communicator& group, const Mistake& mistake)
        : Base(device, group), mistake_(mistake) {}

    Arriving enter_backward(const Tensor& dx) override {
        if (mistake_.without_f) return {dx, dx, std::nullopt};
        return Base::enter_backward(dx);
    }
    Tensor leave(const Tensor& partial) override {
        return mistake_.without_g ? partial : Base::leave(partial);
    }

  private:
    const Mistake& mistake_;
};

std::unique_ptr<TensorParallel> make_regions(Device& device, Communicator& group,
                                             const Mistake& mistake) {
    if (mistake.by_sequence)
        return std::make_unique<Regions<SequenceParallel>>(device, group, mistake);
    return std::make_unique<Regions<TensorParallel>>(device, group, mistake);
}

Tensor tokens(Device& device, int number, const char* name) {
    HostTensor ids({8, 3}, DType::i32);
    const RandomStream stream(5, name);
    for (std::int64_t i = 0; i < ids.elements(); ++i)
        ids.set(i, std::floor(13 * stream.uniform(static_cast<std::uint64_t>(
                                       number * ids.elements() + i))));
    return device.upload(ids);
}

/// Two steps on t ranks. If there are 2 t ranks, there are two replicas.
Program gpt_with(const Mistake& mistake, int t) {
    return [mistake, t](Rank& rank) {
        Device& device = rank.device();
        const int d = rank.size() / t;
        const Mesh mesh(rank.world(), {{"dp", d}, {"tp", t}});
        const auto tp = make_regions(device, mesh["tp"], mistake);
        const std::uint64_t seed = mistake.other_seed && tp->rank() == 1 ? 8 : 7;
        const auto gpt =
            make_gpt({device, DType::f32, seed, ""},
                     {kVocabulary, 8, 2, {8, 4, 16, mistake.norm, mistake.mlp, true}},
                     tensor_parallel({}, *tp));
        AdamW optimizer(gpt->parameters());
        for (int i = 0; i < 2; ++i) {
            zero_gradients(*gpt);
            const int number = d * i + mesh.coordinate("dp");
            Saved saved;
            LossResult loss;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                const Tensor logits = gpt->forward(tokens(device, number, "x"), saved);
                loss = vocabulary_parallel_cross_entropy(
                    *tp, logits, tokens(device, number, "y"), kVocabulary,
                    mistake.own_means ? 1 : 1.0 / d);
            }
            {
                const PhaseScope phase(device, Phase::backward, 0);
                gpt->backward(loss.gradient, saved);
            }
            if (!mistake.forgets_completion) complete_gradients(gpt->parameters());
            for (Parameter* parameter : gpt->parameters())
                mesh["dp"].all_reduce(parameter->gradient).wait();
            const PhaseScope phase(device, Phase::update);
            optimizer.step();
        }
    };
}

/// Returns the mistake in two models: layer norm with GELU, RMS norm with SwiGLU.
std::vector<Mistake> in_both_kinds(Mistake mistake) {
    Mistake other = mistake;
    other.norm = NormKind::rms_norm;
    other.mlp = MlpKind::swiglu;
    return {mistake, other};
}

}  // namespace

TEST_CASE("F23: a GPT without f, without g, or with forgotten norms", "[sim][errors]") {
    Mistake f, g, norms;
    f.without_f = true;
    g.without_g = true;
    norms.by_sequence = norms.forgets_completion = true;
    for (const Mistake& kind : {f, g, norms})
        for (const Mistake& mistake : in_both_kinds(kind))
            for (const int t : {2, 4}) {
                const Diagnosis found = found_by_full_check(4, gpt_with(mistake, t));
                INFO(found.text());
                CHECK(found.fault == "F23");
                check_names(found, {"in step 1", "declared a replica over tp at src/"});
                says(found, "f's (backward");
            }
}

TEST_CASE("F24: tensor-parallel ranks that read tokens or targets of their own",
          "[sim][errors]") {
    for (const bool own_ids : {true, false}) {
        const Diagnosis found = found_by_full_check(2, [&](Rank& rank) {
            Device& device = rank.device();
            TensorParallel tp(device, rank.world());
            const auto gpt =
                make_gpt({device, DType::f32, 7, ""}, {kVocabulary, 8, 1, {8, 4}},
                         tensor_parallel({}, tp));
            Saved saved;
            const Tensor logits =
                gpt->forward(tokens(device, own_ids ? rank.index() : 0, "x"), saved);
            vocabulary_parallel_cross_entropy(
                tp, logits, tokens(device, own_ids ? 0 : rank.index(), "y"), kVocabulary);
        });
        INFO(found.text());
        CHECK(found.fault == "F24");
        says(found, own_ids ? "ids for transformer.wte.weight" : "targets");
    }
}

TEST_CASE("F23: without g, with any operations on the partial sums", "[sim][errors]") {
    Mistake mistake;
    mistake.without_g = true;
    for (const char* through : {"loss", "gelu", "softmax", "dropout"}) {
        const Diagnosis found = found_by_full_check(2, [&](Rank& rank) {
            Device& device = rank.device();
            Regions<TensorParallel> tp(device, rank.world(), mistake);
            const ParameterInit init{device, DType::f32, 7, ""};
            LayerNorm norm(init.child("norm"), 6);
            tp.replicate(norm.parameters());
            const auto mlp = make_mlp(init.child("mlp"), 6, 8, tensor_parallel({}, tp));
            const Tensor x = device.empty({5, 6}, DType::f32);
            device.random_normal(x, {9, "x"}, 0, 1);
            const Tensor mask = device.empty({5, 6}, DType::f32);
            Saved of_norm, of_mlp;
            Tensor y, z;
            const std::string name = through;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                y = z = mlp->forward(norm.forward(x, of_norm), of_mlp);
                if (name == "gelu") z = device.gelu(y);
                if (name == "softmax") z = device.softmax(y);
                device.random_uniform(mask, {9, "mask"}, 0, 2);
                if (name == "dropout") device.multiply(z, mask);
            }
            Tensor dy = mean_squared_error(device, z, x).gradient;
            {
                const PhaseScope phase(device, Phase::backward, 0);
                if (name == "gelu") dy = device.gelu_backward(y, dy);
                if (name == "softmax") dy = device.softmax_backward(z, dy);
                if (name == "dropout") device.multiply(dy, mask);
                norm.backward(mlp->backward(dy, of_mlp), of_norm);
            }
            std::vector<Parameter*> parameters = norm.parameters();
            for (Parameter* parameter : mlp->parameters())
                parameters.push_back(parameter);
            Sgd optimizer(parameters);
            optimizer.step();
        });
        INFO(through << ": " << found.text());
        CHECK(found.fault == "F23");
    }
}

TEST_CASE("F21: means of replicas with a sharded vocabulary, added up", "[sim][errors]") {
    Mistake mistake;
    for (const bool by_sequence : {false, true}) {
        mistake.by_sequence = by_sequence;
        mistake.own_means = false;
        correct(4, gpt_with(mistake, 2));
        mistake.own_means = true;
        const Diagnosis found = found_by_full_check(4, gpt_with(mistake, 2));
        INFO(found.text());
        CHECK(found.fault == "F21");
        check_names(found, {"nothing divides by 2", "2 times that of the mean"});
    }
}

TEST_CASE("F24: replicated parameters with different seeds", "[sim][errors]") {
    Mistake mistake;
    mistake.other_seed = true;
    const Diagnosis found = found_by_full_check(2, gpt_with(mistake, 2));
    INFO(found.text());
    CHECK(found.fault == "F24");
    check_names(found, {"before step 1", "declared replicas at src/parallel/"});
}

}  // namespace lockstep::test
