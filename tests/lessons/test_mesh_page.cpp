// Tests the texts about a mesh, and about a model on it.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lessons/page/html.hpp"
#include "lessons/page/lesson_page.hpp"
#include "lessons/page/terminal_text.hpp"
#include "lessons/tools/mesh_page.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

namespace lockstep::lessons {

namespace {

using test::refusal;
using test::says;

struct SpreadCase {
    std::string axes;
    std::string model;
    int zero = 0;
    std::string schedule = "1f1b";
    int chunks = 1;
    bool sequence = false;
};

ModelOnMesh spread(const SpreadCase& what) {
    MeshOptions options;
    options.axes = read_mesh_shape(what.axes).axes();
    options.zero = what.zero;
    options.schedule = what.schedule;
    options.chunks = what.chunks;
    options.sequence = what.sequence;
    const MeshShape shape(options.axes);
    options.micro_batches = shape.has("pp") ? shape.size("pp") : 1;
    return model_on_mesh(read_model("--model", what.model), options);
}

const std::string kSmall = "layers=4,hidden=16,heads=4,vocabulary=13,context=8";

/// The number of elements in each rank's parts, without and with padding.
struct Counted {
    std::vector<std::int64_t> numbers;
    std::vector<std::int64_t> padded;
};

Counted counted(const std::vector<SpreadParameter>& parameters, std::size_t ranks) {
    Counted all{std::vector<std::int64_t>(ranks), std::vector<std::int64_t>(ranks)};
    for (const SpreadParameter& parameter : parameters)
        for (const HeldPart& held : parameter.parts)
            for (const int rank : held.ranks) {
                all.numbers[static_cast<std::size_t>(rank)] += elements_of(held.part);
                all.padded[static_cast<std::size_t>(rank)] += held.part.shape.elements();
            }
    return all;
}

/// Checks that the parts of all ranks have each element of the whole exactly once.
void check_covers(const std::vector<SpreadParameter>& parameters) {
    for (const SpreadParameter& parameter : parameters) {
        CAPTURE(parameter.name);
        std::vector<Part> parts;
        std::set<int> ranks;
        std::size_t holders = 0;
        for (const HeldPart& held : parameter.parts) {
            if (elements_of(held.part) > 0) parts.push_back(held.part);
            ranks.insert(held.ranks.begin(), held.ranks.end());
            holders += held.ranks.size();
            CHECK(std::ranges::is_sorted(held.ranks));
        }
        CHECK(cover_once(parameter.whole, parts));
        CHECK(holders == ranks.size());  // no rank has two parts
    }
}

std::string text_of(const Document& page) {
    std::string text;
    for (const std::string& line : lines_of(page, {80, false}))
        text += line + "\n";
    return text;
}

}  // namespace

TEST_CASE("the ranks together hold each number of a model, and have the memory for it",
          "[lessons][mesh]") {
    const SpreadCase what = GENERATE(
        SpreadCase{"dp=1", kSmall}, SpreadCase{"tp=4", kSmall + ",kv-heads=4,tied=1"},
        SpreadCase{"pp=2,dp=2,cp=2,tp=2", kSmall + ",kv-heads=2", 0, "1f1b", 1, true},
        SpreadCase{"tp=2,cp=1,pp=2,dp=2", kSmall + ",tied=1", 0, "interleaved", 2},
        SpreadCase{"pp=4,dp=2", kSmall + ",tied=1", 0, "zb-h1"},
        SpreadCase{"pp=2,dp=2", kSmall, 0, "chimera", 2},
        SpreadCase{"dp=3,tp=2", kSmall, 1}, SpreadCase{"pp=2,dp=4,tp=2", kSmall, 2},
        SpreadCase{"pp=2,dp=2,cp=2,tp=2", kSmall + ",style=llama", 3},
        SpreadCase{"dp=2,ep=4", kSmall + ",experts=8,dense=1,shared=8", 1},
        SpreadCase{"ep=2,tp=2", kSmall + ",experts=4,style=llama"});
    CAPTURE(what.axes, what.model, what.zero, what.schedule);
    const ModelOnMesh model = spread(what);
    const auto ranks = static_cast<std::size_t>(read_mesh_shape(what.axes).ranks());
    REQUIRE(model.ranks.size() == ranks);
    check_covers(model.held);
    check_covers(model.updated);
    std::int64_t whole = 0;
    for (const SpreadParameter& parameter : model.held)
        whole += parameter.whole.elements();
    CHECK(whole == model.sizes.parameters());
    const Counted held = counted(model.held, ranks);
    const Counted updated =
        counted(model.updated.empty() ? model.held : model.updated, ranks);
    CHECK(model.updated.empty() == (what.zero == 0 || what.zero == 3));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        const RankHolding& holding = model.ranks[rank];
        CHECK(holding.numbers == held.numbers[rank]);
        CHECK(holding.updated == updated.numbers[rank]);
        // ZeRO also pads its buckets.
        if (what.zero == 0) {
            CHECK(holding.value_bytes == 2 * held.padded[rank]);
            CHECK(holding.gradient_bytes == 2 * held.padded[rank]);
        }
        CHECK(holding.value_bytes >= 2 * held.padded[rank]);
        CHECK(holding.gradient_bytes >= 2 * updated.padded[rank]);
        CHECK(holding.optimizer_bytes == 12 * updated.padded[rank]);
    }
}

TEST_CASE("parts are placed as in Megatron-LM", "[lessons][mesh]") {
    const ModelOnMesh model = spread({"pp=2,dp=2,tp=2", kSmall + ",kv-heads=2"});
    std::map<std::string, std::map<int, std::string>> parts;
    for (const SpreadParameter& parameter : model.held)
        for (const HeldPart& held : parameter.parts)
            for (const int rank : held.ranks)
                parts[parameter.name][rank] = text_of(held.part);
    const auto alternating = [](const std::string& even, const std::string& odd,
                                int first) {
        return std::map<int, std::string>{
            {first, even}, {first + 1, odd}, {first + 2, even}, {first + 3, odd}};
    };
    // Queries of 4 heads with 4 columns each, then keys and values of 2 heads.
    CHECK(parts.at("transformer.h.0.attn.c_attn.weight") ==
          alternating("rows 0–7, 16–19, 24–27", "rows 8–15, 20–23, 28–31", 0));
    CHECK(parts.at("transformer.h.3.attn.c_proj.weight") ==
          alternating("columns 0–7", "columns 8–15", 4));
    CHECK(parts.at("transformer.h.1.mlp.c_fc.bias") ==
          alternating("elements 0–31", "elements 32–63", 0));
    CHECK(parts.at("transformer.h.2.ln_1.weight") == alternating("all", "all", 4));
    CHECK(parts.at("transformer.wte.weight") ==
          alternating("rows 0–6", "rows 7–12, 1 row of padding", 0));
    CHECK(parts.at("lm_head.weight") ==
          alternating("rows 0–6", "rows 7–12, 1 row of padding", 4));
    CHECK(model.labels()[5] ==
          std::vector<std::string>{"layers 2–3", "ln_f, lm_head", "3,232 numbers"});
}

TEST_CASE("a rank's position is described by its places", "[lessons][mesh]") {
    const MeshShape shape({{"pp", 2}, {"dp", 2}, {"ep", 1}, {"tp", 4}});
    CHECK(where_text(shape, {0, 1, 4, 5}) == "pp 0, tp 0–1");
    CHECK(where_text(shape, {3}) == "pp 0, dp 0, tp 3");
    CHECK(where_text(shape, {0, 2, 4, 6, 8, 10, 12, 14}) == "tp 0, 2");
    CHECK(where_text(shape, {0, 5}) == "ranks 0, 5 × 2");
    CHECK(where_text(MeshShape({{"dp", 2}}), {0, 1}) == "all ranks");
    CHECK(where_text(MeshShape({}), {0}) == "all ranks");
}

TEST_CASE("pieces of a model have short names", "[lessons][mesh]") {
    using Names = std::vector<std::string>;
    CHECK(pieces_of({"transformer.wte.weight", "transformer.h.0.ln_1.weight",
                     "transformer.h.0.ln_1.bias", "transformer.h.2.ln_1.weight",
                     "transformer.h.3.mlp.c_fc.weight", "lm_head.weight"}) ==
          Names{"wte", "layers 0, 2–3", "lm_head"});
    CHECK(pieces_of({"transformer.h.7.ln_1.weight"}) == Names{"layer 7"});
    CHECK(pieces_of({}).empty());
    CHECK(layer_name("transformer.h.12.attn.c_proj.bias").layer == 12);
    CHECK(layer_name("transformer.h.12.attn.c_proj.bias").rest == "attn.c_proj.bias");
    CHECK(layer_name("transformer.hx.1.bias").layer == -1);
}

TEST_CASE("groups are marked if they are inside a node", "[lessons][mesh]") {
    const MeshShape shape = read_mesh_shape("pp=2,dp=3,tp=4");
    ExaminedMesh mesh = examined_mesh({shape, 8, {{"pp", "tp"}}, {}});
    const auto nodes = [](const RankGroups& groups) {
        return std::pair{groups.fewest_nodes, groups.most_nodes};
    };
    CHECK(nodes(mesh.lines[0]) == std::pair{2, 2});
    // Ranks 0 4 8 are on nodes 0 and 1; ranks 12 16 20 are on nodes 1 and 2.
    CHECK(nodes(mesh.lines[1]) == std::pair{2, 2});
    CHECK(nodes(mesh.lines[2]) == std::pair{1, 1});
    CHECK(nodes(mesh.planes[0]) == std::pair{2, 2});
    CHECK(nodes(examined_mesh({shape, 16, {}, {}}).lines[1]) == std::pair{1, 2});
    CHECK(mesh.planes[0].group_of(6) == std::vector<int>{4, 5, 6, 7, 16, 17, 18, 19});
    CHECK(examined_mesh({shape, 8, {}, 0}).planes.size() == 3);
    CHECK(examined_mesh({shape, 8, {}, {}}).planes.empty());
    CHECK_THAT(text_of(mesh_page(examined_mesh({shape, 16, {}, {}}))),
               says("across 1 to 2 nodes"));
}

TEST_CASE("impossible questions about a mesh are refused", "[lessons][mesh][errors]") {
    const MeshShape shape = read_mesh_shape("pp=2,dp=2");
    CHECK(refusal([&] {
              examined_mesh({shape, 8, {{"pp", "tp"}}, {}});
          }) == "--plane pp,tp: 'tp' is no axis of pp 2 x dp 2");
    CHECK(refusal([&] {
              examined_mesh({shape, 8, {{"pp", "pp"}}, {}});
          }) == "--plane pp,pp: pp is there twice");
    CHECK_THAT(refusal([&] {
                   examined_mesh({shape, 8, {{"pp"}}, {}});
               }),
               says("name two or more axes"));
    CHECK(refusal([&] {
              examined_mesh({shape, 8, {}, 4});
          }) == "--rank 4: the ranks of pp 2 x dp 2 are 0 to 3");
    const auto model = [](const std::string& text) {
        return refusal([&] { read_model("--model", text); });
    };
    CHECK_THAT(model("mixtral"), says("did you mean mixtral-8x7b?"));
    CHECK_THAT(model(""), says("KEY=VALUE with commas between"));
    CHECK_THAT(model("layers=2,"), says("'' is no KEY=VALUE"));
    CHECK_THAT(model("layers=2,layers=2"), says("layers is given twice"));
    CHECK_THAT(model("layer=2"), says("--model layer=2: no such setting"));
    CHECK_THAT(model("heads=x"), says("--model heads=x: a whole number from 1 to"));
    CHECK_THAT(model("style=bert"), says("gpt2 or llama is expected"));
}

TEST_CASE("models that are known by name have their published sizes", "[lessons][mesh]") {
    CHECK(read_model("--model", "llama2-13b").parameters() == 13'015'864'320);
    CHECK(read_model("--model", "mixtral-8x7b").parameters() == 46'702'792'704);
    CHECK(read_model("--model", "deepseek-v3").parameters() == 671'026'404'352);
    const GptSizes sizes = read_model("--model", "style=llama,kv-heads=2,inner=100");
    CHECK((sizes.layers == 4 && sizes.block.hidden == 64 && sizes.block.kv_heads == 2));
    CHECK((sizes.block.inner == 100 && !sizes.block.bias && sizes.block.rotary_base > 0));
}

TEST_CASE("the largest allowed model is counted exactly", "[lessons][mesh]") {
    const ModelOnMesh model =
        spread({"dp=1",
                "layers=1000,hidden=65536,heads=4096,style=llama,experts=4096,"
                "expert-inner=262144,shared=262144,vocabulary=16777216"});
    // The experts and the shared expert, attention, the gate and two norms; then the
    // tables and ln_f.
    const double layer =
        4097. * 3 * 262144 * 65536 + 4. * 65536 * 65536 + 4096. * 65536 + 2. * 65536;
    const double all = 1000 * layer + 2. * 16777216 * 65536 + 65536;
    const RankHolding& holding = model.ranks.front();
    CHECK(static_cast<double>(holding.numbers) == all);
    CHECK(holding.numbers == model.sizes.parameters());
    CHECK(holding.bytes() == 16 * holding.numbers);
}

TEST_CASE("a page shows a mesh in a terminal and in the book, in its language",
          "[lessons][mesh]") {
    const LessonPage page("a.md",
                          "# Title\n\nQuestion?\n\n## Step {#one}\n\n"
                          "{{picture who}}\n\n{{picture holds: who holds {what}}}\n");
    Record record;
    Findings found(page, record);
    MeshPicture mesh = MeshPicture::of(read_mesh_shape("pp=2,tp=2"), 2);
    mesh.labels = {{"layers 0–1"}, {"layers 0–1"}, {"layers 2–3"}, {"layers 2–3"}};
    found.mesh("who", mesh);
    found.mesh("holds", mesh);
    found.give("what", "what");
    const auto shown = [&](Language language) {
        return filled(page, page.sections().front().text, found, language);
    };
    const std::string text = text_of(shown(Language::english));
    CHECK_THAT(text, says("who holds what: 4 devices, 2 nodes of 2"));
    CHECK_THAT(text, says("│ layers 0–1  layers 0–1 │"));
    CHECK_THAT(text, says("node 1"));
    const std::string html = html_of(shown(Language::english), {});
    CHECK_THAT(html, says("aria-label=\"who holds what\""));
    CHECK_THAT(html, says(">layers 2–3</text>"));
    const std::string chinese = text_of(shown(Language::chinese));
    CHECK_THAT(chinese, says("4 个设备，2 个节点，每个 2 个设备"));
    CHECK_THAT(chinese, says("节点 1"));
}

}  // namespace lockstep::lessons
