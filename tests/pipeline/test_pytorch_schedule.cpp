// Schedules in PyTorch's own format are read, written and run.

#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Schedule read(const std::string& text) {
    return read_schedule_csv(text, "a.csv");
}

std::string problem_of(const std::string& text) {
    const auto problem = find_problem(read(text));
    return problem ? problem->sentence : "";
}

}  // namespace

TEST_CASE("PyTorch's actions are recognized without a setting", "[pipeline]") {
    const Schedule schedule = read(
        "0UNSHARD,0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2I0,2SEND_B0,2W0,2REDUCE_"
        "GRAD,"
        "0RECV_B0,0B0,0RESHARD,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,,1RECV_B0,1B0,1SEND_B0\n");
    CHECK(schedule.parts == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
    CHECK(lines_of(schedule) ==
          std::vector<std::string>{
              "F0 SA0 RA0.1 F0.1 SA0.1 RG0.1 I0.1 SG0.1 W0.1 R.1 RG0 B0 R",
              "RA0 F0 SA0 RA0.1 F0.1 B0.1 SG0.1 RG0 B0 SG0"});
    CHECK(!find_problem(schedule));
    // In this V, rank 0 has both ends of the model.
    const Schedule v = read(
        "0F0,0F1,3F0,(3F1;3B0)OVERLAP_F_B,3B1,0B0,0B1\n"
        "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n");
    CHECK(v.parts == std::vector<std::vector<int>>{{0, 3}, {1, 2}});
    CHECK(lines_of(v)[0] == "F0 F1 F0.1 (F1.1;B0.1) B1.1 B0 B1");
    CHECK(!find_problem(v));
}

TEST_CASE("semicolons inside brackets do not separate cells", "[pipeline]") {
    for (const char* text :
         {"F0,SA0,F1,(SA1;RG0),B0,RG1,B1\nRA0,F0,B0,(SG0;RA1),F1,B1,SG1\n",
          "F0;SA0;F1;\"(SA1;RG0)\";B0;RG1;B1\nRA0;F0;B0;\"(SG0;RA1)\";F1;B1;SG1\n",
          "F0\tSA0\tF1\t(SA1;RG0)\tB0\tRG1\tB1\nRA0\tF0\tB0\t(SG0;RA1)\tF1\tB1\tSG1\n"}) {
        CAPTURE(text);
        CHECK(lines_of(read(text))[0] == "F0 SA0 F1 (SA1;RG0) B0 RG1 B1");
        CHECK(problem_of(text) == "");
    }
}

TEST_CASE("every schedule that PyTorch can express is read back from its text",
          "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        if (!flushes(name)) continue;
        for (const bool sent : {false, true}) {
            CAPTURE(name, sent);
            Schedule schedule =
                make_schedule(name, {4, 8, name == "interleaved" ? 2 : 1});
            for (auto& list : schedule.work)
                std::erase_if(list, [](const Instruction& each) {
                    return each.kind == InstructionKind::optimizer_step;
                });
            if (sent) schedule = with_messages(schedule);
            if (schedule.holders(0) > 1) {
                CHECK(tells(refusal([&] { pytorch_csv(schedule); }),
                            {name, "on two stages"}));
                continue;
            }
            const Schedule again = read(pytorch_csv(schedule));
            CHECK(pytorch_csv(again) == pytorch_csv(schedule));
            // PyTorch's stages are in order on each rank, so these schedules come back
            // reordered.
            if (goes_both_ways(name)) continue;
            CHECK(again.work == schedule.work);
            CHECK(again.parts == schedule.parts);
        }
    }
}

TEST_CASE("schedules that PyTorch cannot express are refused", "[pipeline][errors]") {
    const auto refused = [](const Schedule& schedule) {
        return refusal([&] { pytorch_csv(schedule); });
    };
    CHECK(tells(refused(written_schedule({1, 1, 1}, {"F0@0 B0 R U"})),
                {"stage 0", "versions"}));
    CHECK(tells(refused(written_schedule({1, 2, 1}, {"F0 B0 R U F1 B1 R U"})),
                {"stage 0, instruction 4", "updates only after the whole schedule"}));
    const Schedule work = make_schedule("1f1b", {2, 4, 1});
    CHECK(tells(refused(with_grouped_messages(work)), {"stage 0", "groups of messages"}));
    Schedule queues = with_messages_in_place(work);
    queues.queues = MessageQueues::by_direction;
    CHECK(tells(refused(queues), {"1f1b", "queue"}));
}

TEST_CASE("cells that are no actions are refused with their line", "[pipeline][errors]") {
    const auto refused = [](const std::string& text) {
        return refusal([&] { read(text); });
    };
    for (const std::string cell :
         {"0F", "0X1", "0FULL1", "F1", "0F1x", "0REDUCE_GRAD3", "(0F1;0B0)",
          "(0F1;0B0)OVERLAP", "(0F1;)OVERLAP_F_B", "()OVERLAP_F_B", "0UNSHARD1", "-1F0",
          "0SEND_F", "0F99999999999"})
        CHECK(tells(refused("0F0,0B0\n1F0," + cell + "\n"),
                    {"a.csv:2", cell, "torch.distributed.pipelining"}));
    // The cells say which parts a rank has.
    CHECK(tells(refused("parts,0,1\n0F0,0B0\n1F0,1B0\n"),
                {"a.csv:1", "parts", "torch.distributed.pipelining"}));
    CHECK(tells(refused("0F0,0B0\n0F1,0B1\n"), {"a.csv:2", "ranks 0 and 1", "stage 0"}));
    CHECK(tells(refused("0F0,0B0\n1F0,2F0,1B0,2B0\n"),
                {"a.csv:1", "rank 0 has 1 of PyTorch's stages, but another rank has 2"}));
}

// github.com/pytorch/pytorch, issue 172668, comments of 2026-01-21.
TEST_CASE("the orders of PyTorch's issue 172668 hang, and their mended forms do not",
          "[pipeline]") {
    const std::string rank_0 =
        "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,"
        "2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n";
    const std::string behind =
        "3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,"
        "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1\n";
    // Both ranks send before they receive.
    const std::string hangs = "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,";
    CHECK(tells(problem_of(rank_0 + hangs + behind), {"deadlock", "closes the cycle"}));
    // Rank 1 receives first, as odd ranks do in Megatron-LM.
    const std::string mended = "1RECV_F0,1F0,1RECV_F1,1SEND_F0,1F1,1SEND_F1,";
    const std::string rank_0_mended =
        "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2RECV_F1,2SEND_F0,2F1,"
        "2RECV_B0,2SEND_F1,2B0,2RECV_B1,2SEND_B0,2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,"
        "0B1\n";
    CHECK(problem_of(rank_0_mended + mended +
                     "3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,"
                     "1RECV_B0,1B0,1RECV_B1,1SEND_B0,1B1,1SEND_B1\n") == "");
    // With a queue for each direction, the first order runs as it is.
    Schedule by_direction = read(rank_0 + hangs + behind);
    by_direction.queues = MessageQueues::by_direction;
    CHECK(!find_problem(by_direction));
    // In the second order, rank 1's SEND_B0 waits for a receive behind rank 0's SEND_F2.
    // That SEND_F2 waits for a receive behind rank 1's SEND_B0.
    const std::string second = problem_of(
        "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,0F1,0SEND_F1,2RECV_F1,2F1,2SEND_F1,"
        "0F2,0SEND_F2,2RECV_B0,2B0,2SEND_B0,2RECV_F2,2F2,2SEND_F2,2RECV_B1,2B1,"
        "2SEND_B1,2RECV_B2,2B2,2SEND_B2,0RECV_B0,0B0,0RECV_B1,0B1,0RECV_B2,0B2\n"
        "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,1RECV_F1,1F1,1SEND_F1,3RECV_F1,"
        "3SEND_B0,3F1,3B1,1RECV_F2,3SEND_B1,1F2,1SEND_F2,3RECV_F2,3F2,3B2,"
        "3SEND_B2,1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1RECV_B2,1B2,"
        "1SEND_B2\n");
    CHECK(tells(second, {"deadlock", "SG0.1", "SA2"}));
}
