// Compares many devices with one. The check finds what differs, and names a cause only if
// the difference shows it.

#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

Tensor values(Rank& rank, double factor, DType dtype = DType::f64) {
    Tensor tensor = rank.device().empty({8}, dtype);
    rank.device().random_normal(tensor, RandomStream(1, "values"), 0, 1);
    rank.device().scale(tensor, factor);
    return tensor;
}

Diagnosis found(int ranks, const Program& program, const Program& reference) {
    World world;
    world.check = sim::CheckLevel::full;
    sim::ClusterOptions options = options_of(world, ranks);
    options.reference = reference;
    try {
        sim::make_cluster(options)->run(program);
    } catch (const FaultError& error) {
        return error.diagnosis();
    }
    return {};
}

Diagnosis found_with(int ranks, double factor) {
    return found(
        ranks, [=](Rank& rank) { rank.keep("x", values(rank, factor)); },
        [](Rank& rank) { rank.keep("x", values(rank, 1)); });
}

}  // namespace

TEST_CASE("a factor of a group's size from one device is a wrong average",
          "[sim][faults]") {
    CHECK(found_with(3, 3).fault == "F21");
    CHECK(found_with(3, 1.0 / 3).fault == "F21");
    CHECK(found_with(3, 1).title.empty());
    const Diagnosis other = found_with(3, 2.5);
    CHECK(other.fault.empty());
    CHECK(other.sentence.find("2.5 times") != std::string::npos);
    CHECK(other.text().find("test_reference.cpp") != std::string::npos);
}

TEST_CASE("rounding passes a comparison with one device, and NaN does not",
          "[sim][faults]") {
    const auto diagnosed = [](double change) {
        return found(
            2,
            [=](Rank& rank) {
                const Tensor x = values(rank, 1, DType::f32);
                if (rank.index() == 1) rank.device().scale(x.slice(3, 1), change);
                rank.keep("x", x);
            },
            [](Rank& rank) { rank.keep("x", values(rank, 1, DType::f32)); });
    };
    CHECK(diagnosed(1 + 1e-6).title.empty());
    CHECK(!diagnosed(std::nan("")).title.empty());
    const Diagnosis one = diagnosed(1.5);
    CHECK(one.fault.empty());
    REQUIRE(!one.parties.empty());
    CHECK(one.parties.front().ranks == std::vector<int>{1});
}

namespace {

/// A fixed line for keep(), so that the messages are known.
SourceLine line(int number) {
    return {"train.cpp", number};
}

/// A table of 8 x 2 numbers; row i is (i, i + 100).
Tensor table(Rank& rank, DType dtype = DType::f64) {
    HostTensor values({8, 2}, dtype);
    for (std::int64_t i = 0; i < 16; ++i) {
        const std::int64_t row = i / 2, column = i % 2;
        values.set(i, static_cast<double>(row + 100 * column));
    }
    return rank.device().upload(values);
}

/// Compares the program with one device that keeps the table as "w" in this dtype.
Diagnosis found_beside_table(int ranks, const Program& program,
                             DType dtype = DType::f64) {
    return found(ranks, program,
                 [=](Rank& rank) { rank.keep("w", table(rank, dtype), line(1)); });
}

/// Returns this rank's four rows of the table. There are two ranks.
Tensor own_rows(Rank& rank) {
    return table(rank).slice(std::int64_t{8} * rank.index(), 8).reshaped({4, 2});
}

Part own_part(Rank& rank) {
    return row_part({8, 2}, std::int64_t{4} * rank.index(), 4);
}

}  // namespace

TEST_CASE("a shard is compared with its part of one device's tensor", "[sim][faults]") {
    const auto diagnosed = [](int wrong) {
        return found_beside_table(2, [=](Rank& rank) {
            const Tensor w = own_rows(rank);
            if (rank.index() == wrong) rank.device().fill(w.slice(3, 1), 50);
            rank.keep("w", w, own_part(rank), line(7));
        });
    };
    CHECK(diagnosed(-1).title.empty());
    const Diagnosis diagnosis = diagnosed(1);
    CHECK(diagnosis.title == "not what one device gets");
    CHECK(diagnosis.sentence ==
          "'w', given to keep() at train.cpp:7 on rank 1, is not what one device gets: "
          "elements differ by different factors");
    REQUIRE(!diagnosis.details.empty());
    CHECK(diagnosis.details.front() ==
          "largest difference at element 3 of rank 1's part: 50, and 105 on one "
          "device");
}

TEST_CASE("padding of a shard is not compared with one device", "[sim][faults]") {
    const auto diagnosed = [](double value) {
        return found_beside_table(3, [=](Rank& rank) {
            // Each rank has three rows; the third row of the last rank is not part of the
            // whole.
            const Part part = row_part({8, 2}, std::int64_t{3} * rank.index(), 3);
            const Tensor w = rank.device().empty({3, 2}, DType::f64);
            rank.device().fill(w, 1e6);
            const std::int64_t held = 2 * part.rows[0].count;
            rank.device().copy(w.slice(0, held),
                               table(rank).slice(std::int64_t{6} * rank.index(), held));
            if (rank.index() == 2) rank.device().fill(w.slice(held - 1, 1), value);
            rank.keep("w", w, part);
        });
    };
    CHECK(diagnosed(107).title.empty());
    CHECK(diagnosed(108).title == "not what one device gets");
}

TEST_CASE("a name that only ranks keep, or only one device, is a mistake",
          "[sim][faults]") {
    const Diagnosis mistyped =
        found_beside_table(2, [](Rank& rank) { rank.keep("v", table(rank), line(7)); });
    CHECK(mistyped.title == "not what one device keeps");
    CHECK(mistyped.sentence ==
          "'v', given to keep() at train.cpp:7 on ranks 0–1, is not what one device "
          "keeps: it keeps nothing of that name, but 'w', which no rank keeps");
    REQUIRE(mistyped.parties.size() == 1);
    CHECK(mistyped.parties[0].ranks == std::vector<int>{0, 1});
    CHECK(mistyped.parties[0].operation == "keep('v')");
    CHECK(mistyped.parties[0].at == line(7));

    const Diagnosis more = found_beside_table(2, [](Rank& rank) {
        rank.keep("w", table(rank));
        if (rank.index() == 1) rank.keep("v", table(rank), line(8));
    });
    CHECK(more.sentence ==
          "'v', given to keep() at train.cpp:8 on rank 1, is not what one device keeps: "
          "it keeps nothing of that name");

    const Diagnosis missing = found_beside_table(2, [](Rank&) {});
    CHECK(missing.sentence ==
          "'w', which one device gives to keep() at train.cpp:1, is kept by no rank");
    CHECK(missing.text().find("not what one device keeps") == 0);
}

TEST_CASE("a tensor that only one rank keeps is compared with one device",
          "[sim][faults]") {
    const auto diagnosed = [](double factor) {
        return found_beside_table(2, [=](Rank& rank) {
            if (rank.index() == 0) return;
            const Tensor w = table(rank);
            rank.device().scale(w, factor);
            rank.keep("w", w);
        });
    };
    CHECK(diagnosed(1).title.empty());
    CHECK(diagnosed(0.5).fault == "F21");
}

TEST_CASE("a whole must have the same shape and type as on one device", "[sim][faults]") {
    const Diagnosis shape = found_beside_table(2, [](Rank& rank) {
        rank.keep("w", own_rows(rank), line(7));  // does not say which part
    });
    CHECK(shape.title == "not what one device keeps");
    CHECK(shape.sentence ==
          "'w', given to keep() at train.cpp:7 on ranks 0–1, is not what one device "
          "keeps: it is f64 (4, 2), and one device keeps f64 (8, 2)");

    const Diagnosis whole = found_beside_table(2, [](Rank& rank) {
        rank.keep("w", own_rows(rank),
                  row_part({9, 2}, std::int64_t{4} * rank.index(), 4), line(7));
    });
    CHECK(whole.sentence ==
          "'w', given to keep() at train.cpp:7 on ranks 0–1, is not what one device "
          "keeps: it is a part of f64 (9, 2), and one device keeps f64 (8, 2)");

    const Diagnosis dtype = found_beside_table(2, [](Rank& rank) {
        const DType own = rank.index() == 1 ? DType::f32 : DType::f64;
        rank.keep("w", table(rank, own), line(7));
    });
    CHECK(dtype.sentence ==
          "'w', given to keep() at train.cpp:7 on rank 1, is not what one device keeps: "
          "it is f32 (8, 2), and one device keeps f64 (8, 2)");
}

TEST_CASE("an element that one device keeps, but no rank, is a mistake",
          "[sim][faults]") {
    const Diagnosis diagnosis = found_beside_table(2, [](Rank& rank) {
        if (rank.index() == 0) rank.keep("w", own_rows(rank), own_part(rank), line(7));
    });
    CHECK(diagnosis.sentence ==
          "'w', given to keep() at train.cpp:7 on rank 0, is not what one device keeps: "
          "no rank keeps element 8 of (8, 2)");
}

TEST_CASE("integers are compared exactly with one device", "[sim][faults]") {
    const auto diagnosed = [](std::int32_t value) {
        return found_beside_table(
            2,
            [=](Rank& rank) {
                HostTensor values = rank.device().peek(table(rank, DType::i32));
                values.set(15, value);
                rank.keep("w", rank.device().upload(values), line(7));
            },
            DType::i32);
    };
    CHECK(diagnosed(107).title.empty());
    CHECK(diagnosed(108).sentence ==
          "'w', given to keep() at train.cpp:7 on ranks 0–1, is not what one device "
          "gets: integers must be equal");
}

TEST_CASE("a series needs its name on one device, too, but not its values",
          "[sim][faults]") {
    const auto diagnosed = [](const char* name) {
        return found(
            2,
            [=](Rank& rank) {
                if (rank.index() == 1) rank.keep_value(name, 3, line(7));
            },
            [](Rank& rank) { rank.keep_value("loss", 5); });
    };
    CHECK(diagnosed("loss").title.empty());
    CHECK(diagnosed("los").sentence ==
          "'los', given to keep_value() at train.cpp:7 on rank 1, is not what one device "
          "keeps: it keeps nothing of that name, but 'loss', which no rank keeps");
}

namespace {

/// One pass of a GPT. On two ranks its vocabulary is padded.
void keep_gpt(Rank& rank, const GptKit& kit, double factor_of_last) {
    GptSizes sizes;
    sizes.vocabulary = 13;
    sizes.context = 4;
    sizes.layers = 2;
    sizes.block.hidden = 8;
    sizes.block.heads = 2;
    Device& device = rank.device();
    const auto gpt = make_gpt({device, DType::f64, 1, ""}, sizes, kit);
    HostTensor ids({4, 2}, DType::i32);
    for (std::int64_t i = 0; i < ids.elements(); ++i)
        ids.set(i, static_cast<double>(3 * i % 13));
    Saved saved;
    const Tensor x = device.upload(ids);
    const Tensor logits = gpt->forward(x, saved);
    gpt->backward(kit.loss(sizes)(device, logits, x, 1).gradient, saved);
    for (const Parameter* parameter : gpt->parameters()) {
        if (rank.index() == 1 && parameter == gpt->parameters().back())
            device.scale(parameter->gradient, factor_of_last);
        rank.keep(parameter->name(), parameter->value, parameter->part());
        rank.keep("grad/" + parameter->name(), parameter->gradient, parameter->part());
    }
}

}  // namespace

TEST_CASE("a tensor-parallel GPT's shards equal one device's", "[sim][faults]") {
    const auto diagnosed = [](double factor) {
        return found(
            2,
            [=](Rank& rank) {
                TensorParallel tp(rank.device(), rank.world());
                keep_gpt(rank, tensor_parallel({}, tp), factor);
            },
            [](Rank& rank) { keep_gpt(rank, {}, 1); });
    };
    CHECK(diagnosed(1).text() == Diagnosis().text());
    const Diagnosis wrong = diagnosed(0.5);
    REQUIRE(!wrong.parties.empty());
    CHECK(wrong.parties.front().ranks == std::vector<int>{1});
    CHECK(wrong.sentence.find("'grad/") == 0);
}

TEST_CASE("the comparison with one device costs neither virtual time nor bytes",
          "[sim]") {
    const auto program = [](Rank& rank) {
        const Tensor x = values(rank, 0.5);
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    };
    World world;
    world.check = sim::CheckLevel::full;
    sim::ClusterOptions options = options_of(world, 2);
    const RunReport plain = sim::make_cluster(options)->run(program);
    options.reference = [](Rank& rank) { rank.keep("x", values(rank, 1)); };
    const RunReport compared = sim::make_cluster(options)->run(program);
    CHECK(compared.makespan() == plain.makespan());
    CHECK(compared.bytes_sent() == plain.bytes_sent());
}

}  // namespace lockstep::test
