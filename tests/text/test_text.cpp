#include <cstdint>
#include <string>
#include <vector>

#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("every code point survives encoding and decoding", "[text]") {
    for (char32_t value = 0; value <= 0x10FFFF; ++value) {
        if (value >= 0xD800 && value <= 0xDFFF) continue;
        const std::string bytes = encode_utf8(value);
        const CodePoint point = decode_utf8(bytes, 0);
        if (!point.valid || point.value != value || point.bytes != bytes.size())
            FAIL("code point " << static_cast<std::uint32_t>(value));
    }
}

TEST_CASE("somebody else's text is shown without what nobody sees", "[text][hostile]") {
    CHECK(printable("a\tb\nc\r\nd") == "a\\x09b c  d");
    CHECK(printable(std::string("\0\x1b[31m\x7f", 7)) == "\\x00\\x1b[31m\\x7f");
    CHECK(printable("\xff\xc2\x9b\xed\xa0\x80") == "\\xff\\x9b\\xed\\xa0\\x80");
    for (const char32_t value : {0x061CU, 0x200BU, 0x200EU, 0x202EU, 0x2028U, 0x2066U,
                                 0xFEFFU, 0xFFFFU, 0xE0041U})
        CHECK(printable("x" + encode_utf8(value)).starts_with("x\\u{"));
    for (const char* text : {"学é", "\u4e2d\u2014 \U0001F600", "a b"})
        CHECK(printable(text) == text);
    CHECK(printable(printable("\xe2\x80\xae")) == "\\u{202e}");
}

TEST_CASE("typed numbers have commas between thousands, or an exponent", "[text]") {
    CHECK(parse_typed_number(" 1,000,000 ") == 1e6);
    CHECK(parse_typed_number("1e6") == 1e6);
    CHECK(parse_typed_number("-12,345.5") == -12345.5);
    CHECK(parse_typed_number("+.5") == 0.5);
    CHECK(parse_typed_number("1,234e3") == 1234e3);
    CHECK(parse_typed_number("10,000") == 1e4);
    CHECK(parse_typed_number("100,000") == 1e5);
    for (const char* text :
         {"", " ", "1,00", "1,0000", ",100", "1,,000", "1 000", "1.5 MiB", "nan", "inf",
          "1e999", "0x10", "12,", "1.5,000", "1234,567", "0,714"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_typed_number(text).has_value());
    }
}

TEST_CASE("numbers are shown with commas, or four digits", "[text]") {
    CHECK(number_text(1650) == "1,650");
    CHECK(number_text(-1234567) == "-1,234,567");
    CHECK(number_text(0.000123456) == "0.0001235");
    CHECK(number_text(1e-13) == "1e-13");
    CHECK(number_text(1.25e-5) == "1.25e-5");
    CHECK(number_text(1e100) == "1e100");
    CHECK(number_text(-1e20) == "-1e20");
}

TEST_CASE("the nearest name is found for a mistyped one", "[text]") {
    const Words names{"gradient-accumulation", "ring-attention"};
    CHECK(nearest("gradient-acumulation", names) == "gradient-accumulation");
    CHECK(nearest("gradient", names) == "gradient-accumulation");
    CHECK(nearest("ring-atention", names) == "ring-attention");
    CHECK_FALSE(nearest("pipeline", names).has_value());
    CHECK_FALSE(nearest("x", names).has_value());
    CHECK(either({"a"}) == "a");
    CHECK(either({"a", "b", "c"}) == "a, b or c");
}

TEST_CASE("consecutive numbers are a range", "[text]") {
    CHECK(ranges_text({}).empty());
    CHECK(ranges_text({7}) == "7");
    CHECK(ranges_text({3, 0, 1, 2, 8, 3, 10, 11}) == "0–3, 8, 10–11");
    CHECK(ranges_of({5, 7}) == Words{"5", "7"});
}

TEST_CASE("words are separated by commas, and may be empty", "[text]") {
    CHECK(split_at_commas("dp,,tp") == Words{"dp", "", "tp"});
    CHECK(split_at_commas("") == Words{""});
    CHECK(split_at_commas("a,") == Words{"a", ""});
}
