#include <array>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/report/describe.hpp"
#include "src/report/record.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

std::int64_t numbers_in(Module& module) {
    std::int64_t numbers = 0;
    for (const Parameter* parameter : module.parameters())
        numbers += parameter->value.elements();
    return numbers;
}

/// A plain GPT, and GPTs that each differ from it in one or several members.
std::vector<GptSizes> gpts() {
    const GptSizes plain{11, /*context=*/6, /*layers=*/2, {8, 4}};
    std::vector<GptSizes> all(10, plain);
    all[1].tied = true;
    all[2].block.rotary_base = 10'000;
    all[3].block.kv_heads = 2;
    all[4].block.mlp = MlpKind::swiglu;
    all[5].block.norm = NormKind::rms_norm;
    all[6].block.bias = false;
    all[8].block.experts.count = 5;
    all[8].block.experts.shared = 6;
    all[8].dense_blocks = 1;
    all[9].block.latent = {4, 3, 3, 2, 5};
    all[9].block.rotary_base = 10'000;
    GptSizes& other = all[7] = all[2];
    other.block = {12, 6,      20,   NormKind::rms_norm, MlpKind::swiglu, true,
                   3,  10'000, false};
    return all;
}

}  // namespace

TEST_CASE("a model has the number of parameters in its description", "[report]") {
    sim::make_cluster(1)->run([](Rank& rank) {
        const ParameterInit init{rank.device(), DType::f32, 1, ""};
        for (const GptSizes& sizes : gpts()) {
            INFO(describe(sizes).dump(2));
            CHECK(numbers_in(*make_gpt(init, sizes)) == sizes.parameters());
        }
        const CharModelSizes sizes{11, 3, 4, 7};
        CHECK(numbers_in(*make_char_model(init, sizes)) == sizes.parameters());
    });
}

TEST_CASE("run.json describes a model whole", "[report]") {
    const GptSizes sizes{11, 6, 2, {8, 4}};
    Record record;
    record.models["gpt"] = trained(describe(sizes), describe(AdamWOptions{}, DType::bf16),
                                   "cross_entropy", 1, 3);
    const Json gpt = Json::parse(run_json(record)).at("models").at("gpt");
    // The document has every member, so no reader needs the defaults in the source.
    for (const char* key :
         {"vocabulary", "context", "layers", "hidden", "heads", "kv_heads", "head_width",
          "causal", "positions", "norm", "norm_epsilon", "mlp", "gelu", "inner", "bias",
          "tied", "parameters", "steps"})
        CHECK(gpt.contains(key));
    CHECK(gpt.at("kv_heads").get<int>() == 4);
    CHECK(gpt.at("inner").get<int>() == 32);
    CHECK(gpt.at("optimizer").at("kind").is("adamw"));
    CHECK(gpt.at("optimizer").at("betas").elements().at(1).get<double>() == 0.999);
    CHECK(gpt.at("optimizer").at("master").is("f32"));
    CHECK(gpt.at("loss").at("factor").get<double>() == 1);

    const Json experts = describe(gpts()[8]);
    for (const char* key : {"count", "inner", "shared", "capacity", "order", "gate"})
        CHECK(experts.at("experts").contains(key));
    CHECK(experts.at("experts").at("gate").at("form").is("top_k_then_softmax"));
    CHECK(experts.at("dense_blocks").get<int>() == 1);
    CHECK(experts.at("active_parameters").get<int>() <
          experts.at("parameters").get<int>());
    CHECK(describe(gpts()[9]).at("latent_attention").at("query_rank").get<int>() == 4);

    const Json other = describe(gpts()[7]);
    CHECK(other.at("positions").is("rotary"));
    CHECK(other.at("rotary_base").get<double>() == 10'000);
    CHECK(other.at("mlp").is("swiglu"));
    CHECK(!other.contains("gelu"));
    CHECK(other.at("norm").is("rms_norm"));
}

}  // namespace lockstep::test
