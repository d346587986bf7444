#include "src/text/table.hpp"
#include "src/text/wrap.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

using Lines = std::vector<std::string>;

TEST_CASE("width is counted in columns of the terminal", "[text]") {
    CHECK(columns_of("abc") == 3);
    CHECK(columns_of("2(n−1)/n → é") == 12);
    CHECK(columns_of("分布") == 4);
    CHECK(columns_of("e\xCC\x81") == 1);
}

TEST_CASE("a paragraph is broken at white space", "[text]") {
    CHECK(wrap("", 10).empty());
    CHECK(wrap("  one\n two  ", 10) == Lines{"one two"});
    CHECK(wrap("one two three", 7) == Lines{"one two", "three"});
    CHECK(wrap("→ → → →", 3) == Lines{"→ →", "→ →"});
}

TEST_CASE("a word longer than the line is broken, and a line may break at an ideograph",
          "[text]") {
    CHECK(wrap("ab abcdefgh cd", 3) == Lines{"ab", "abc", "def", "gh", "cd"});
    CHECK(wrap("分布式 训练", 5) == Lines{"分布", "式 训", "练"});
    CHECK(wrap("as 分布式", 5) == Lines{"as 分", "布式"});
}

TEST_CASE("no line begins with a comma or ends with an opening bracket", "[text]") {
    CHECK(wrap("一二，三（四）", 6) == Lines{"一二，", "三", "（四）"});
    CHECK(wrap("ab，cd", 4) == Lines{"ab，", "cd"});
    CHECK(wrap("说“好”", 4) == Lines{"说", "“好”"});
}

TEST_CASE("a fixed line that is too long goes on below, indented", "[text]") {
    CHECK(fold("  short", 10) == Lines{"  short"});
    CHECK(fold("f(a, beta, gamma + 1)", 16) == Lines{"f(a, beta,", "    gamma + 1)"});
    CHECK(fold("  x = alpha + beta", 12) == Lines{"  x = alpha", "      + beta"});
    CHECK(fold("abcdefghijklmnop", 8) == Lines{"abcdefgh", "    ijkl", "    mnop"});
}

TEST_CASE("code that is too wide loses its alignment before it is folded", "[text]") {
    const std::string code =
        "if (ready) {\n"
        "    send(first,\n"
        "         second);\n"
        "    const auto sum = add(first,\n"
        "                         second_of_them);\n"
        "}\n";
    CHECK(fold_code(code, 80) == split_lines(code));
    CHECK(fold_code(code, 32) ==
          Lines{"if (ready) {", "    send(first,", "         second);",
                "    const auto sum = add(first,", "        second_of_them);", "}"});
    CHECK(fold_code("x = f(a,\n      beta, gamma);", 16) ==
          Lines{"x = f(a,", "    beta,", "        gamma);"});
    // Deeper lines after an empty line do not belong to the empty line.
    const std::string after_empty = "\n        {\n            f(alpha, beta);\n        }";
    CHECK(fold_code(after_empty, 24) == Lines{"", "        {", "            f(alpha,",
                                              "            beta);", "        }"});
    CHECK(fold_code("", 10).empty());
    CHECK(fold_code("    // a comment that goes on", 24) ==
          Lines{"    // a comment that", "    // goes on"});
    CHECK(fold_code("    /// a comment that goes on", 24) ==
          Lines{"    /// a comment that", "    /// goes on"});
    CHECK(fold_code("f(a);  // a comment that goes on", 24) ==
          Lines{"f(a);  // a comment that", "    // goes on"});
    CHECK(fold_code("f(a, beta);  // gamma", 16) == Lines{"f(a, beta);", "    // gamma"});
    // Even if code is indented far to the right, no folded line is only spaces.
    CHECK(fold_code("                part(init, plan);", 24) ==
          Lines{"            part(init,", "            plan);"});
}

TEST_CASE("no line of a wrapped or folded text is too long, at any width", "[text]") {
    const std::string text =
        "    Réduire, 分布式训练 and averylongwordwithoutanyspaceinside  — 2(n−1)/n of "
        "it.";
    for (int width = 4; width < 100; ++width) {
        for (const auto& lines :
             {wrap(text, width), fold(text, width), fold_code(text, width)})
            for (const std::string& line : lines) {
                CAPTURE(width, line);
                CHECK(columns_of(line) <= width);
            }
    }
}

TEST_CASE("numbers are recognised with signs, exponents and units", "[text]") {
    for (const char* cell :
         {"1,024", "-3.5e-7", "12.5 us", "75 %", "–", "", "4×", "0.01"})
        CHECK(is_number_cell(cell));
    for (const char* cell :
         {"data_parallel", "n", "2(n-1)/n of the buffer", "4 devices at once"})
        CHECK_FALSE(is_number_cell(cell));
}

TEST_CASE("columns of numbers are aligned right, columns of words left", "[text]") {
    const TableText text =
        table_text({{"what", "bytes"}, {{"one", "5"}, {"three", "1,024"}}}, 40);
    CHECK(text.head == Lines{"what   bytes", "─────  ─────"});
    CHECK(text.body == Lines{"one        5", "three  1,024"});
}

TEST_CASE("if a table does not fit, its text is wrapped and its numbers stay whole",
          "[text]") {
    const Table table{
        {"variant", "bytes sent", "what happens"},
        {{"accumulation", "1,000,000", "one device, one batch behind another"}}};
    const TableText text = table_text(table, 44);
    CHECK(text.head == Lines{"variant       bytes sent  what happens",
                             "────────────  ──────────  ──────────────────"});
    CHECK(text.body == Lines{"accumulation   1,000,000  one device, one",
                             "                          batch behind",
                             "                          another"});
}

TEST_CASE("if words do not fit side by side, rows and columns are exchanged", "[text]") {
    const TableText text = table_text(
        {{"of", "time", "parameters", "gradients"}, {{"all", "3 us", "100 B", "9 KiB"}}},
        24);
    CHECK(text.head == Lines{"of            all", "──────────  ─────"});
    CHECK(text.body ==
          Lines{"time         3 us", "parameters  100 B", "gradients   9 KiB"});
}

TEST_CASE("if exchanged rows and columns do not fit, rows become blocks", "[text]") {
    const TableText text = table_text(
        {{"variant", "bytes"}, {{"accumulation", "0"}, {"parallel", "400"}}}, 16);
    CHECK(text.head.empty());
    CHECK(text.body == Lines{"varian  accumula", "t       tion", "bytes   0", "",
                             "varian  parallel", "t", "bytes   400"});
}

TEST_CASE("no line of a table is too long, at any width", "[text]") {
    const Table table{
        {"variant", "time", "memory at the peak", "what happens there"},
        {{"reference", "12.5 us", "1.5 MiB", "one device does everything"},
         {"分布式训练", "3 us", "400 B", "averylongwordwithoutanyspaceinside"}}};
    for (int width = 10; width < 110; ++width) {
        const TableText text = table_text(table, width);
        for (const auto& lines : {text.head, text.body})
            for (const std::string& line : lines) {
                CAPTURE(width, line);
                CHECK(columns_of(line) <= width);
            }
    }
}

TEST_CASE("a row that lacks a cell is our mistake", "[text][errors]") {
    CHECK_THROWS_AS(table_text({{"a", "b"}, {{"1"}}}, 40), std::logic_error);
}
