#include <fstream>

#include <fmt/format.h>

#include "lessons/book/site.hpp"
#include "lessons/page/sha256.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace fs = std::filesystem;

namespace {

void take_and_write(const fs::path& folder, const Site& site) {
    take_site_folder(folder);
    write_site(folder, site);
}

}  // namespace

TEST_CASE("a rewritten site loses its old pages", "[lessons]") {
    const TemporaryFolder folder;
    const fs::path site = folder.path() / "site";
    take_and_write(site, {{"a.html", "1"}, {"zh/a.html", "2"}, {"b.html", "3"}});
    CHECK(read_file(site / "zh" / "a.html") == "2");
    take_and_write(site, {{"a.html", "4"}, {"zh/a.html", "5"}});
    CHECK(read_file(site / "a.html") == "4");
    CHECK_FALSE(fs::exists(site / "b.html"));
}

TEST_CASE("a site does not change other files", "[lessons]") {
    const TemporaryFolder folder;
    take_and_write(folder.path(), {{"a.html", "1"}, {"b.html", "2"}});
    write_file(folder.path() / "notes.txt", "mine");
    take_and_write(folder.path(), {{"a.html", "3"}});
    CHECK(read_file(folder.path() / "notes.txt") == "mine");

    SECTION("a foreign file in a page's place stops the writing before it begins") {
        write_file(folder.path() / "c.html", "mine");
        CHECK_THROWS_WITH(
            take_and_write(folder.path(), {{"a.html", "4"}, {"c.html", "5"}}),
            Catch::Matchers::ContainsSubstring(
                "c.html in this folder was not written by a book"));
        CHECK(read_file(folder.path() / "a.html") == "3");
        CHECK(read_file(folder.path() / "c.html") == "mine");
    }
    SECTION("a list that names what lies outside removes nothing there") {
        const fs::path outside = folder.path() / "outside.txt";
        const fs::path site = folder.path() / "site";
        write_file(outside, "mine");
        take_and_write(site, {{"a.html", "1"}});
        write_file(site / "site.json",
                   fmt::format(R"({{"lockstep": "1", "files": {{"../outside.txt": ["{0}"],
                       "a.html": ["{1}"]}}}})",
                               sha256("mine"), sha256("1")));
        take_and_write(site, {{"b.html", "2"}});
        CHECK(read_file(outside) == "mine");
        CHECK_FALSE(fs::exists(site / "a.html"));
    }
    SECTION("a page that was changed is neither removed nor overwritten") {
        const fs::path page = folder.path() / "a.html";
        write_file(page, "mine");
        take_and_write(folder.path(), {{"b.html", "4"}});
        CHECK(read_file(page) == "mine");
        CHECK_THROWS_WITH(take_and_write(folder.path(), {{"a.html", "5"}}),
                          Catch::Matchers::ContainsSubstring(
                              "a.html in this folder was not written by a book"));
        CHECK(read_file(page) == "mine");
    }
    SECTION("a link in the place of a file is not followed") {
        const fs::path target = folder.path() / "notes.txt";
        const fs::path site = folder.path() / "site";
        write_file(target, "1");
        take_and_write(site, {{"a.html", "1"}});
        fs::remove(site / "a.html");
        fs::create_symlink(target, site / "a.html");
        CHECK_THROWS_WITH(take_and_write(site, {{"a.html", "2"}}),
                          Catch::Matchers::ContainsSubstring("a.html in it is a link"));
        take_and_write(site, {{"b.html", "2"}});
        CHECK(fs::is_symlink(site / "a.html"));
        CHECK(read_file(target) == "1");
    }
    SECTION("a link in the place of the list is not followed") {
        const fs::path site = folder.path() / "site";
        take_and_write(site, {{"a.html", "1"}});
        fs::rename(site / "site.json", folder.path() / "site.json.mine");
        fs::create_symlink(folder.path() / "site.json.mine", site / "site.json");
        CHECK_THROWS_WITH(
            take_and_write(site, {{"a.html", "2"}}),
            Catch::Matchers::ContainsSubstring("site.json in it is a link"));
    }
    SECTION("a link that leads outside is not followed") {
        const fs::path site = folder.path() / "site";
        take_and_write(site, {{"zh/a.html", "1"}});
        fs::rename(site / "zh", folder.path() / "zh");
        fs::create_directory_symlink(folder.path() / "zh", site / "zh");
        CHECK_THROWS_WITH(take_and_write(site, {{"zh/a.html", "2"}}),
                          Catch::Matchers::ContainsSubstring("zh in it is a link"));
        take_and_write(site, {{"b.html", "2"}});
        CHECK(read_file(folder.path() / "zh" / "a.html") == "1");
    }
    SECTION("a site.json that is no list of a site's files stops the writing") {
        for (const char* list : {"{}", R"({"generator": "x", "files": ["notes.txt"]})"}) {
            write_file(folder.path() / "site.json", list);
            CHECK_THROWS_WITH(
                take_and_write(folder.path(), {{"a.html", "4"}}),
                Catch::Matchers::ContainsSubstring("no list of a site's files"));
            CHECK(read_file(folder.path() / "notes.txt") == "mine");
        }
    }
}

TEST_CASE("a site is not written into a folder with other files", "[lessons]") {
    const TemporaryFolder folder;
    write_file(folder.path() / "notes.txt", "mine");
    CHECK_THROWS_WITH(take_site_folder(folder.path()),
                      Catch::Matchers::ContainsSubstring(
                          "contains notes.txt and is not a book's; nothing was written"));
    CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("a file cannot be a site's folder", "[lessons]") {
    const TemporaryFolder folder;
    write_file(folder.path() / "file", "");
    CHECK_THROWS_WITH(take_and_write(folder.path() / "file", {}),
                      Catch::Matchers::ContainsSubstring("is no folder"));
}
