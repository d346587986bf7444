#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>

#include "lessons/runner/input_files.hpp"
#include "src/core/require.hpp"
#include "src/os/descriptor.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

std::vector<double> numbers(const NumberTable& table) {
    const auto values = table.values.values<double>();
    return {values.begin(), values.end()};
}

std::string refusal(std::string_view bytes) {
    return message_of<UsageError>([&] { read_csv(bytes, "data.csv"); });
}

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

}  // namespace

TEST_CASE("numbers are read row by row, with or without a header", "[lessons]") {
    const NumberTable bare = read_csv("1,2.5\n-3e2,+4\n", "data.csv");
    CHECK(bare.values.shape() == Shape{2, 2});
    CHECK(numbers(bare) == Numbers{1, 2.5, -300, 4});
    CHECK(bare.columns == Names{"column 1", "column 2"});

    const NumberTable headed = read_csv("size,price\n1,2.5\n-3e2,4", "data.csv");
    CHECK(numbers(headed) == Numbers{1, 2.5, -300, 4});
    CHECK(headed.columns == Names{"size", "price"});
}

TEST_CASE("separators, quotes and line ends do not change the table", "[lessons]") {
    for (const std::string_view bytes :
         {"a,b\n1,2\n3,4\n", "a;b\n1;2\n3;4\n", "a\tb\n1\t2\n3\t4\n",
          "a,b\r\n1,2\r\n3,4\r\n",
          "\xEF\xBB\xBF"
          "a,b\n1,2\n3,4\n",
          "\"a\",\"b\"\n\"1\",2\n3,\"4\"\n", "a,b\n1,2\n3,4\n\n \r\n\n", "a,b\n1,2\n3,4",
          " a , b \n 1 , 2 \n 3 , 4 \n"}) {
        CAPTURE(bytes);
        const NumberTable table = read_csv(bytes, "data.csv");
        CHECK(table.columns == Names{"a", "b"});
        CHECK(numbers(table) == Numbers{1, 2, 3, 4});
    }
}

TEST_CASE("quoted cells may hold separators, quotes and line breaks", "[lessons]") {
    const NumberTable table = read_csv("\"a, \"\"b\"\";\",\"c\nd\"\n1,2\n", "data.csv");
    CHECK(table.columns == Names{"a, \"b\";", "c\nd"});
    CHECK(numbers(table) == Numbers{1, 2});
}

TEST_CASE("a header needs one cell of text; columns without a name are numbered",
          "[lessons]") {
    CHECK(read_csv(",2019,price\n1,2,3\n", "data.csv").columns ==
          Names{"column 1", "2019", "price"});
    CHECK(read_csv("2019,2020\n1,2\n", "data.csv").values.shape() == Shape{2, 2});
    CHECK(refusal(",2019\n") == "data.csv, row 1, column 1: the cell is empty");
}

TEST_CASE("a bad cell is named by row and column", "[lessons][errors]") {
    CHECK(refusal("id,size,price\n1,2,3\n4,5,abc\n") ==
          "data.csv, row 3, column 3 (price): 'abc' is not a number");
    CHECK(refusal("1,2\n3,x\n") == "data.csv, row 2, column 2: 'x' is not a number");
    CHECK(refusal("a,b\n1,nan\n") ==
          "data.csv, row 2, column 2 (b): 'nan' is not a finite number");
    CHECK(refusal("1,NaN\n") ==
          "data.csv, row 1, column 2: 'NaN' is not a finite number");
    CHECK(refusal("1\n-inf\n") ==
          "data.csv, row 2, column 1: '-inf' is not a finite number");
    CHECK(refusal("1\n1e999\n") ==
          "data.csv, row 2, column 1: '1e999' is not a finite number");
    CHECK(refusal("a,b\n1,\n") == "data.csv, row 2, column 2 (b): the cell is empty");
    CHECK(refusal("a;b\n1;2,5\n") ==
          "data.csv, row 2, column 2 (b): '2,5' is not a number: a decimal point is "
          "expected");
    CHECK(refusal("1\n0x10\n") == "data.csv, row 2, column 1: '0x10' is not a number");
    CHECK(refusal("1\n2 3\n") == "data.csv, row 2, column 1: '2 3' is not a number");
}

TEST_CASE("a row's number is its line's number, even after cells of several lines",
          "[lessons][errors]") {
    CHECK(refusal("\"a\nb\",c\n1,2\n3,x\n") ==
          "data.csv, row 4, column 2 (c): 'x' is not a number");
}

TEST_CASE("a bad cell is shown short and printable", "[lessons][errors]") {
    CHECK(refusal("1\n\x1b[31mred\n") ==
          "data.csv, row 2, column 1: '\\x1b[31mred' is not a number");
    CHECK(refusal("1\n" + std::string(500, 'x') + "\n").size() < 120);
}

TEST_CASE("a file without a table is refused", "[lessons][errors]") {
    CHECK(refusal("") == "data.csv is empty");
    CHECK(refusal("\n \r\n") == "data.csv is empty");
    CHECK(refusal("a,b\n") == "data.csv has a header but no rows of numbers");
    CHECK(refusal("1,2\n3\n") == "data.csv, row 2: 1 cell, but the first row has 2");
    CHECK(refusal("1,2\n3,4,5\n") == "data.csv, row 2: 3 cells, but the first row has 2");
    CHECK(refusal("1,2\n\n3,4\n") == "data.csv, row 2: the row is empty");
    CHECK(refusal("1,\"2\n") == "data.csv, row 1, column 2: the quote is not closed");
    CHECK(refusal("1,\"2\"3\n") ==
          "data.csv, row 1, column 2: text follows a closing quote");
    CHECK(refusal(std::string_view("1,\0", 3)) ==
          "data.csv is not CSV text: byte 0x00 at offset 2");
}

TEST_CASE("a file that cannot be read is named with the reason", "[lessons][errors]") {
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    CHECK(message_of<std::system_error>([&] { load_csv(folder.path() / "none.csv"); }) ==
          "cannot read " + path + "/none.csv: No such file or directory");
    CHECK(message_of<std::system_error>([&] { load_csv(folder.path()); }) ==
          "cannot read " + path + ": Is a directory");
    CHECK(numbers(load_csv(folder.file("one.csv", "7\n"))) == Numbers{7});
}

TEST_CASE("a file larger than the limit is refused, and so is a device without end",
          "[lessons][errors]") {
    const std::string sentence = " is larger than 64 MiB, the limit for such a file";
    CHECK(message_of<UsageError>([] { load_csv("/dev/zero"); }) ==
          "/dev/zero" + sentence);

    const TemporaryFolder folder;
    const std::filesystem::path path = folder.file("large.csv", "");
    std::filesystem::resize_file(path, kLargestInputBytes + 1);
    CHECK(message_of<UsageError>([&] { load_csv(path); }) == path.string() + sentence);
}

TEST_CASE("a pipe with a writer is read to its end; without a writer it is refused",
          "[lessons][errors]") {
    const TemporaryFolder folder;
    const std::string path = (folder / "pipe").string();
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK(message_of<UsageError>([&] { load_csv(path); }) ==
          path +
              ": no program writes to this pipe; a file, or a pipe with a writer, is "
              "expected");

    std::thread writer([&] {
        std::ofstream pipe(path);
        pipe << "7\n" << std::flush;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        pipe << "8\n";
    });
    // This reader lets the writer's open() return; poll() sees that it has written.
    const os::Descriptor other(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
    pollfd readable{other.number(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 10'000) == 1);
    CHECK(numbers(load_csv(path)) == Numbers{7, 8});
    writer.join();
}
