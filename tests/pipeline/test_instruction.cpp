#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

TEST_CASE("every instruction is read back from its own text", "[pipeline]") {
    for (int kind = 0; kind < kInstructionKinds; ++kind)
        for (const int chunk : {0, 1, 12})
            for (const int version : {-1, 0, 7}) {
                Instruction written;
                written.kind = static_cast<InstructionKind>(kind);
                written.micro_batch = has_micro_batch(written.kind) ? 103 : -1;
                written.chunk = chunk;
                written.weight_version = version;
                CAPTURE(text_of(written));
                CHECK(read_instructions(text_of(written)) == std::vector{written});
            }
}

TEST_CASE("the text of an instruction is letters, micro-batch, chunk and version",
          "[pipeline]") {
    CHECK(text_of({InstructionKind::forward, 3}) == "F3");
    CHECK(text_of({InstructionKind::backward, 3, 1}) == "B3.1");
    CHECK(text_of({InstructionKind::forward, 3, 0, 2}) == "F3@2");
    for (const std::string text : {"F3@~5", "B3.1@~0", "B3!", "I3@2!", "W3.1@~2!"}) {
        const std::vector<Instruction> read = read_instructions(text);
        REQUIRE(read.size() == 1);
        CHECK(text_of(read.front()) == text);
        CHECK(read.front().estimated == (text.find('~') != std::string::npos));
        CHECK(read.front().mixes_weights == (text.back() == '!'));
    }
    CHECK(text_of({InstructionKind::recv_gradient, 0, 2}) == "RG0.2");
    CHECK(text_of({InstructionKind::optimizer_step, -1, 1}) == "U.1");
    CHECK(words_of({InstructionKind::backward_input, 4}) ==
          "backward-input of micro-batch 4 (I4)");
}

TEST_CASE("instructions that begin together are one text in brackets", "[pipeline]") {
    const std::vector<Instruction> read = read_instructions("(F7.1; B3@2 ;RG0)");
    REQUIRE(read.size() == 3);
    CHECK(!read[0].together);
    CHECK((read[1].together && read[2].together));
    CHECK(texts_of(read) == std::vector<std::string>{"(F7.1;B3@2;RG0)"});
    const std::vector<Instruction> in_turn{{InstructionKind::forward, 1},
                                           {InstructionKind::backward, 0}};
    CHECK(texts_of(in_turn) == std::vector<std::string>{"F1", "B0"});
}

TEST_CASE("a text that is no instruction is refused", "[pipeline][errors]") {
    const std::vector<std::string> wrong{
        "",        "F",        "3F",     "X3",     "F-1",          "F3.",    "F3.x",
        "F3@",     "F3 ",      " F3",    "FB3",    "R3",           "U0",     "SA",
        "f3",      "F3,4",     "F3.1.2", "F3@1.2", "F99999999999", "F3.-1",  "F3@-1",
        "F+3",     "F0x3",     "F3@~",   "F3@~x",  "F3!!",         "F3!@2",  "F3@~-1",
        "()",      "(F3)",     "(F3;)",  "(;F3)",  "(F3;B1",       "F3;B1)", "F3;B1",
        "(F3,B1)", "((F3;B1))"};
    for (const std::string& text : wrong) {
        CAPTURE(text);
        CHECK(read_instructions(text).empty());
    }
}
