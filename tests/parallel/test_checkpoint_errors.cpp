// The mistakes in programs and the damaged files that a checkpoint refuses, and the
// messages.

#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include "sim/cluster.hpp"
#include "src/core/part.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/checkpoint_index.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/power_sgd.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_offload.hpp"
#include "src/report/files.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;

struct Model {
    explicit Model(Rank& rank, std::int64_t rows = 5, DType dtype = DType::f64)
        : layer({rank.device(), dtype, 1, "layer"}, 3, rows) {
        declare_replicas_of(rank.world(), layer);
    }
    Linear layer;
};

std::string refused_on(int ranks, const std::function<void(Rank&)>& program) {
    return refusal([&] { sim::make_cluster(ranks)->run(program); });
}

/// Saves a layer that is sharded over two ranks; if given, with this value everywhere.
fs::path saved(const TemporaryFolder& folder, std::int64_t step = 0,
               std::optional<double> value = {}) {
    sim::make_cluster(2)->run([&](Rank& rank) {
        Model model(rank);
        Zero1 sync(rank.device(), rank.world(), model.layer.parameters());
        AdamW optimizer(sync.shards());
        for (const Parameter* shard : sync.shards())
            if (value) rank.device().fill(shard->value, *value);
        save_checkpoint(rank.device(), rank.world(), folder.path(), step,
                        {sync, &optimizer});
    });
    return latest_checkpoint(folder.path()).value();
}

std::string refused_load(const fs::path& place, std::int64_t rows = 5,
                         DType dtype = DType::f64) {
    return refused_on(1, [&](Rank& rank) {
        Model model(rank, rows, dtype);
        AllReduceSync sync(model.layer.parameters());
        load_checkpoint(rank.device(), rank.world(), place, sync);
    });
}

std::string replaced(std::string text, const std::string& part,
                     const std::string& other) {
    const std::size_t at = text.rfind(part);
    REQUIRE(at != std::string::npos);
    return text.replace(at, part.size(), other);
}

}  // namespace

TEST_CASE("A checkpoint of another model or optimizer is refused by name",
          "[parallel][checkpoint][errors]") {
    const TemporaryFolder folder;
    const fs::path place = saved(folder);
    CHECK(refused_load(place) == "nothing was refused");
    CHECK_THAT(refused_load(place, 6),
               says("layer.weight is f64 (5, 3) in the checkpoint, but f64 (6, 3) here"));
    CHECK_THAT(refused_load(place, 5, DType::f32),
               says("layer.weight is f64 (5, 3) in the checkpoint, but f32 (5, 3) here"));
    CHECK_THAT(refused_on(1,
                          [&](Rank& rank) {
                              Model model(rank);
                              AllReduceSync sync({model.layer.parameters().front()});
                              load_checkpoint(rank.device(), rank.world(), place, sync);
                          }),
               says("the checkpoint has layer.bias (5), but no rank has it here"));
    CHECK_THAT(
        refused_on(1,
                   [&](Rank& rank) {
                       Model model(rank);
                       AllReduceSync sync(model.layer.parameters());
                       Sgd sgd(model.layer.parameters());
                       load_checkpoint(rank.device(), rank.world(), place, {sync, &sgd});
                   }),
        says("the checkpoint has exp_avg/layer.bias (5), but no rank has it here"));
    CHECK_THAT(
        refused_on(1,
                   [&](Rank& rank) {
                       Model model(rank);
                       AllReduceSync sync(model.layer.parameters());
                       Sgd sgd(model.layer.parameters(), {0.1, 0.9, 0});
                       load_checkpoint(rank.device(), rank.world(), place, {sync, &sgd});
                   }),
        says("the checkpoint has no momentum_buffer/layer.weight"));
}

TEST_CASE("Impossible saves are refused", "[parallel][checkpoint][errors]") {
    const TemporaryFolder folder;
    const auto save = [&](Rank& rank, GradientSync& sync, std::int64_t step = 0) {
        save_checkpoint(rank.device(), rank.world(), folder / "run", step, sync);
    };
    CHECK_THAT(refused_on(2,
                          [&](Rank& rank) {
                              Model model(rank);
                              PowerSgd sync(rank.device(), rank.world(),
                                            model.layer.parameters());
                              save(rank, sync);
                          }),
               says("the strategy cannot continue without the errors that it feeds back, "
                    "which a checkpoint does not contain"));
    CHECK_THAT(refused_on(2,
                          [&](Rank& rank) {
                              Model model(rank);
                              ZeroOffload sync(rank.device(), rank.world(),
                                               model.layer.parameters(), {}, true);
                              save(rank, sync);
                          }),
               says("the gradient that its next update takes"));
    CHECK_THAT(refused_on(2,
                          [&](Rank& rank) {
                              Linear layer({rank.device(), DType::f64, 1, "layer"}, 3, 5);
                              AllReduceSync sync(layer.parameters());
                              save(rank, sync);
                          }),
               says("the 2 pieces of layer.bias do not cover each element of its shape "
                    "(5) exactly once; if ranks hold copies, declare them first"));
    CHECK_THAT(refused_on(1,
                          [&](Rank& rank) {
                              Model model(rank);
                              AllReduceSync sync(model.layer.parameters());
                              save(rank, sync, -1);
                          }),
               says("save_checkpoint: the step is -1; 0 or more is expected"));
    CHECK(!latest_checkpoint(folder / "run"));
    CHECK_THAT(refused_on(1,
                          [&](Rank& rank) {
                              Model model(rank);
                              AllReduceSync sync(model.layer.parameters());
                              save(rank, sync, 3);
                              save(rank, sync, 3);
                          }),
               says("step-00000003 is a whole checkpoint already"));
    CHECK(latest_checkpoint(folder / "run") == folder / "run" / "step-00000003");
}

TEST_CASE("An incomplete checkpoint is refused", "[parallel][checkpoint][errors]") {
    const TemporaryFolder folder;
    const fs::path place = saved(folder);
    fs::create_directory(folder / "step-00000009");
    fs::create_directory(folder / "step-x");
    CHECK(latest_checkpoint(folder.path()) == place);
    CHECK(!latest_checkpoint(folder / "nowhere"));
    CHECK_THAT(refused_load(folder / "step-00000009"),
               says("this is no checkpoint, or an unfinished one"));

    SECTION("A file is shorter than it was") {
        fs::resize_file(place / "rank-1.safetensors",
                        fs::file_size(place / "rank-1.safetensors") - 1);
        CHECK_THAT(refused_load(place), says("rank-1.safetensors: the file has"));
    }
    SECTION("A file is gone") {
        fs::remove(place / "rank-1.safetensors");
    }
    SECTION("A file belongs to no checkpoint") {
        write_safetensors(place / "rank-1.safetensors", {});
    }
    SECTION("The index is cut") {
        fs::resize_file(place / "index.json", fs::file_size(place / "index.json") / 2);
        CHECK_THAT(refused_load(place), says("this is no index of a checkpoint"));
    }
    CHECK(!latest_checkpoint(folder.path()));
}

namespace {

/// Writes bytes over those of a file, from `at` on.
void overwrite(const fs::path& file, std::size_t at, const std::string& bytes) {
    std::string text = read_text_file(file, 1 << 20);
    write_text_file(file, text.replace(at, bytes.size(), bytes));
}

}  // namespace

TEST_CASE("Files of different saves, and changed bytes, are refused",
          "[parallel][checkpoint][errors]") {
    const TemporaryFolder folder, other_run;
    const fs::path first = saved(folder, 1, 1), second = saved(folder, 2, 2);
    const fs::path other = saved(other_run, 2, 3);
    const std::string one = "rank-1.safetensors", zero = "rank-0.safetensors";
    const auto take = [&](const fs::path& from, const std::string& file,
                          const std::string& as) {
        fs::copy_file(from / file, second / as, fs::copy_options::overwrite_existing);
    };
    const std::size_t bytes = fs::file_size(second / one);
    std::string expected = one + ": ";
    SECTION("A shard of the step before") {
        take(first, one, one);
        expected +=
            "this file belongs to another save, of step 1; index.json is of step 2";
    }
    SECTION("A shard of another run") {
        take(other, one, one);
        expected += "this file belongs to another save, of step 2";
    }
    SECTION("The shard of another rank") {
        take(second, zero, one);
        expected += "";
    }
    SECTION("The index of the step before") {
        take(first, "index.json", "index.json");
        expected = "belongs to another save, of step 2; index.json is of step 1";
    }
    SECTION("The index of another run") {
        take(other, "index.json", "index.json");
        expected = "belongs to another save, of step 2";
    }
    SECTION("All shards of another run") {
        take(other, zero, zero);
        take(other, one, one);
        expected = "belongs to another save, of step 2";
    }
    SECTION("A changed step in the index") {
        const std::string text = read_text_file(second / "index.json", 1 << 20);
        write_text_file(second / "index.json",
                        replaced(text, R"("step":2)", R"("step":3)"));
        expected = "belongs to another save, of step 2; index.json is of step 3";
    }
    SECTION("A hash in the index") {
        const std::string text = read_text_file(second / "index.json", 1 << 20);
        const std::size_t at = text.find(R"("hashes":[")") + 11;
        overwrite(second / "index.json", at, text[at] == '0' ? "1" : "0");
        expected = "say different things of";
    }
    SECTION("A bit of a value") {
        const std::string text = read_text_file(second / one, 1 << 20);
        overwrite(second / one, bytes - 20,
                  std::string(1, static_cast<char>(text[bytes - 20] ^ 1)));
        expected += "the values of ";
    }
    SECTION("A zero block at the end") {
        overwrite(second / one, bytes - 64, std::string(64, '\0'));
        expected += "the values of ";
    }
    SECTION("A zero page at the beginning") {
        overwrite(second / one, 0, std::string(64, '\0'));
    }
    SECTION("A letter of the header") {
        const std::string text = read_text_file(second / one, 1 << 20);
        const std::size_t at = text.find("lockstep checkpoint 2");
        overwrite(second / one, at, "L");
        expected = "this is no index of a checkpoint";
    }
    SECTION("A name in the header") {
        const std::string text = read_text_file(second / one, 1 << 20);
        overwrite(second / one, text.find("\"layer.bias") + 1, "m");
        expected = one;
    }
    SECTION("Values of two tensors changed places") {
        const std::string text = read_text_file(second / one, 1 << 20);
        overwrite(second / one, bytes - 16,
                  text.substr(bytes - 8, 8) + text.substr(bytes - 16, 8));
        overwrite(second / one, bytes - 24, std::string(8, '\1'));
        expected += "the values of ";
    }
    SECTION("A byte too many") {
        write_text_file(second / one, read_text_file(second / one, 1 << 20) + "x");
        expected += "the file has";
    }
    CHECK_THAT(refused_load(second), says(expected));
    CHECK_THAT(refusal([&] { read_checkpoint(second); }), says(expected));
    CHECK(latest_checkpoint(folder.path()) == first);
}

TEST_CASE("A checkpoint of format 1, without hashes, is read", "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    const fs::path place = saved(folder, 4, 5);
    const NamedTensors before = read_checkpoint(place);
    const std::string text = read_text_file(place / "index.json", 1 << 20);
    std::string old = std::regex_replace(text, std::regex(R"(,"hashes":\[[^\]]*\])"), "");
    old = std::regex_replace(old, std::regex(R"("save":"[0-9a-f]*",)"), "");
    write_text_file(place / "index.json",
                    std::regex_replace(old, std::regex("checkpoint 2"), "checkpoint 1"));
    CHECK(read_checkpoint(place) == before);
    CHECK(latest_checkpoint(folder.path()) == place);
}

TEST_CASE("The rest of an incomplete checkpoint is removed before the next save",
          "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    const fs::path place = saved(folder);
    const NamedTensors before = read_checkpoint(place);
    fs::remove(place / "rank-0.safetensors");
    for (const char* name : {"rank-7.safetensors", ".rank-1.safetensors.12-3.part",
                             "notes.txt", "rank-1.safetensors.old"})
        write_text_file(place / name, "old");
    const auto save_again = [&](double value, bool fails) {
        return refused_on(2, [&](Rank& rank) {
            Model model(rank);
            Zero1 sync(rank.device(), rank.world(), model.layer.parameters());
            AdamW optimizer(sync.shards()), of_others(model.layer.parameters());
            for (const Parameter* shard : sync.shards())
                rank.device().fill(shard->value, value);
            const bool wrong = fails && rank.index() == 1;
            save_checkpoint(rank.device(), rank.world(), folder.path(), 0,
                            {sync, wrong ? &of_others : &optimizer});
        });
    };
    CHECK_THAT(save_again(2, true),
               says("the optimizer's parameters are not those that are updated here"));
    CHECK(!latest_checkpoint(folder.path()));
    CHECK(save_again(3, false) == "nothing was refused");
    for (const auto& [name, tensor] : read_checkpoint(place)) {
        CHECK(tensor.shape() == before.at(name).shape());
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            CHECK(tensor.at(i) == 3);
    }
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(place))
        files.insert(entry.path().filename().string());
    CHECK(files == std::set<std::string>{"index.json", "notes.txt", "rank-0.safetensors",
                                         "rank-1.safetensors", "rank-1.safetensors.old"});
}

TEST_CASE("A wrong index is refused", "[parallel][checkpoint][errors]") {
    const TemporaryFolder folder;
    const fs::path place = saved(folder);
    const std::string text = read_text_file(place / "index.json", 1 << 20);
    const auto refused = [&](const std::string& part, const std::string& other) {
        write_text_file(place / "index.json", replaced(text, part, other));
        return refused_load(place);
    };
    CHECK(refused(R"("step":0)", R"("step":0)") == "nothing was refused");
    CHECK_THAT(refused("checkpoint 2", "checkpoint 3"), says("its format is not"));
    CHECK_THAT(refused(R"("step":0)", R"("step":-1)"),
               says("step: a number is too large, or negative"));
    CHECK_THAT(refused(R"("step":0)", R"("step":1e300)"),
               says("step: a whole number is expected"));
    CHECK_THAT(refused(R"("step":0)", R"("step":18446744073709551615)"),
               says("step: a number is too large, or negative"));
    CHECK_THAT(refused(R"("dtype":"f64")", R"("dtype":"f8")"),
               says("its role or dtype is unknown"));
    CHECK_THAT(refused(R"("shape":[5,3])", R"("shape":[5,3,1,1,1])"),
               says("a shape of up to four extents is expected"));
    CHECK_THAT(
        refused(R"("shape":[5,3])", R"("shape":[576460752303423487,576460752303423487])"),
        says("the shape is too large"));
    CHECK_THAT(refused(R"("shape":[5,3])", R"("shape":"5x3")"), says("a shape of"));
    CHECK_THAT(refused(R"("rows":[[0,0,)", R"("rows":[[0,900,)"),
               says("a piece names rows or columns outside the tensor"));
    CHECK_THAT(refused(R"("rows":[[0,0,)", R"("rows":[[0,1,)"), says("layer."));
    CHECK_THAT(refused(R"("file":"rank-0.safetensors")", R"("file":"../secret")"),
               says("the name of a file in the same folder is expected"));
    CHECK_THAT(
        refused(R"("file":"rank-0.safetensors")", R"("file":"rank-1.safetensors")"),
        says("say different things of layer.weight"));
    CHECK_THAT(
        refused(R"("file":"rank-0.safetensors")", R"("file":"rank-9.safetensors")"),
        says("is in rank-9.safetensors, but gives that file only 0 bytes"));
    CHECK_THAT(refused(R"("tensors":{)", R"("tensors":[{)"),
               says("this is no index of a checkpoint"));
    CHECK_THAT(refused(R"("shape":[5,3])", R"("shape":[288230376151711744,3])"),
               says("layer.weight"));
    CHECK_THAT(refused(R"("flat":true)", R"("flat":1)"), says("true or false"));
    CHECK_THAT(refused(R"("column":0)", R"("column":7)"), says("outside the tensor"));
}

TEST_CASE("The common elements of two parts are found", "[core][part]") {
    const Shape whole{6, 4};
    const Part rows = row_part(whole, 1, 3), columns = column_part(whole, 2, 2);
    std::int64_t elements = 0;
    for (const CommonRun& run : common_runs(rows, columns))
        elements += run.count;
    CHECK(elements == 6);
    CHECK(common_runs(row_part(whole, 0, 2), row_part(whole, 2, 2)).empty());
    CHECK(cover_once(whole, {columns, column_part(whole, 0, 2)}));
    CHECK(cover_once(whole, {flat_part(whole, 0, 7), flat_part(whole, 7, 20)}));
    CHECK(!cover_once(whole, {columns, columns}));
    CHECK(!cover_once(whole, {row_part(whole, 0, 3)}));
    CHECK(!cover_once(whole, {row_part(whole, 1, 6)}));
}

}  // namespace lockstep::test
