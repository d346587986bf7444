#include <system_error>

#include "lessons/runner/input_files.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

std::string refusal(std::string_view bytes, std::int64_t least = 1) {
    return message_of<UsageError>([&] { read_text(bytes, "text.txt", least); });
}

}  // namespace

TEST_CASE("a text becomes places in its vocabulary", "[lessons]") {
    const Text text = read_text("abca\n", "text.txt");
    CHECK(text.vocabulary == U"\nabc");
    CHECK(text.ids == std::vector<std::int32_t>{1, 2, 3, 1, 0});
}

TEST_CASE("characters are code points, whatever their number of bytes", "[lessons]") {
    const Text text =
        read_text("\xC3\xA9\xE5\x88\x86\xF0\x9F\x98\x80z\xC3\xA9", "text.txt");
    CHECK(text.vocabulary == U"zé分😀");
    CHECK(text.ids == std::vector<std::int32_t>{1, 2, 3, 0, 1});
}

TEST_CASE("a byte order mark is not part of the text", "[lessons]") {
    CHECK(read_text("\xEF\xBB\xBFok", "text.txt").vocabulary == U"ko");
}

TEST_CASE("invalid UTF-8 is named with its offset", "[lessons][errors]") {
    CHECK(refusal("ab\xFF") == "text.txt is not UTF-8 text: byte 0xff at offset 2");
    CHECK(refusal("a\x80") == "text.txt is not UTF-8 text: byte 0x80 at offset 1");
    CHECK(refusal("caf\xE9 latin-1") ==
          "text.txt is not UTF-8 text: byte 0xe9 at offset 3");
    CHECK(refusal("cut \xE5\x88") == "text.txt is not UTF-8 text: byte 0xe5 at offset 4");
    CHECK(refusal("\xC0\xAF overlong") ==
          "text.txt is not UTF-8 text: byte 0xc0 at offset 0");
    CHECK(refusal("\xED\xA0\x80 surrogate") ==
          "text.txt is not UTF-8 text: byte 0xed at offset 0");
    CHECK(refusal("\xF4\x90\x80\x80 too large") ==
          "text.txt is not UTF-8 text: byte 0xf4 at offset 0");
    CHECK(refusal(std::string_view("ELF\0", 4)) ==
          "text.txt is not UTF-8 text: byte 0x00 at offset 3");
}

TEST_CASE("a text that is empty or too short is refused", "[lessons][errors]") {
    CHECK(refusal("") == "text.txt is empty");
    CHECK(refusal("\xEF\xBB\xBF") ==
          "text.txt has 0 characters, but at least 1 are needed");
    CHECK(refusal("\xC3\xA9", 2000) ==
          "text.txt has 1 character, but at least 2,000 are needed");
    CHECK(read_text("abc", "text.txt", 3).ids.size() == 3);
}

TEST_CASE("a text file that cannot be read is named with the reason",
          "[lessons][errors]") {
    const TemporaryFolder folder;
    const std::filesystem::path none = folder.path() / "none\n.txt";
    CHECK(message_of<std::system_error>([&] { load_text(none); }) ==
          "cannot read " + folder.path().string() +
              "/none .txt: No such file or directory");
    CHECK(load_text(folder.file("a.txt", "aa")).ids == std::vector<std::int32_t>{0, 0});
}
