#include "src/text/json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

using Library = nlohmann::ordered_json;

/// Trees are walked by recursion, so the stack limits their depth.
constexpr int kDeepest = 500;

std::string dumped(const Library& json, int indent) {
    return json.dump(indent, ' ', false, Library::error_handler_t::replace);
}

}  // namespace

std::string json_quoted(std::string_view text) {
    return dumped(Library(text), -1);
}

std::string json_number(double value) {
    if (std::isnan(value)) return R"("NaN")";
    if (std::isinf(value)) return value > 0 ? R"("Infinity")" : R"("-Infinity")";
    return Library(value).dump();
}

bool is_utf8(std::string_view text) {
    try {
        static_cast<void>(Library(text).dump());
        return true;
    } catch (const Library::type_error&) {
        return false;
    }
}

Json::Json(std::initializer_list<Json> list) {
    const bool pairs = std::ranges::all_of(list, [](const Json& element) {
        return element.is_array() && element.size() == 2 &&
               element.elements().front().is_string();
    });
    if (!pairs) {
        value_ = Array(list);
        return;
    }
    for (Object& members = value_.emplace<Object>(); const Json& pair : list)
        members.emplace_back(pair.elements()[0].get<std::string>(), pair.elements()[1]);
}

Json& Json::operator[](const std::string& key) {
    if (const Json* found = find(key)) return const_cast<Json&>(*found);
    return std::get<Object>(value_).emplace_back(key, Json()).second;
}

const Json* Json::find(const std::string& key) const {
    if (!is_object()) return nullptr;
    const auto found = std::ranges::find(members(), key, &Object::value_type::first);
    return found == members().end() ? nullptr : &found->second;
}

const Json::Array& Json::elements() const {
    if (!is_array()) fail("a list");
    return std::get<Array>(value_);
}

const Json::Object& Json::members() const {
    if (!is_object()) fail("an object");
    return std::get<Object>(value_);
}

const Json& Json::at(const std::string& key) const {
    members();
    if (const Json* found = find(key)) return *found;
    throw JsonError(json_quoted(key) + " is missing");
}

void Json::fail(const char* expected) {
    throw JsonError(std::string(expected) + " is expected");
}

namespace {

Json taken(const Library& json) {
    switch (json.type()) {
        case Library::value_t::object: {
            Json::Object members;
            for (const auto& [key, value] : json.items())
                members.emplace_back(key, taken(value));
            return members;
        }
        case Library::value_t::array: {
            Json::Array elements;
            for (const Library& element : json)
                elements.push_back(taken(element));
            return elements;
        }
        case Library::value_t::string:
            return json.get<std::string>();
        case Library::value_t::boolean:
            return json.get<bool>();
        case Library::value_t::number_integer:
            return json.get<std::int64_t>();
        case Library::value_t::number_unsigned:
            return json.get<std::uint64_t>();
        case Library::value_t::number_float:
            return json.get<double>();
        default:
            return nullptr;
    }
}

/// Converts a Json value to the library's type.
struct Giver {
    Library operator()(const Json::Array& elements) const {
        Library list = Library::array();
        for (const Json& element : elements)
            list.push_back(element.visit(*this));
        return list;
    }
    Library operator()(const Json::Object& members) const {
        Library object = Library::object();
        for (const auto& [key, value] : members)
            object[key] = value.visit(*this);
        return object;
    }
    template <typename T>
    Library operator()(const T& value) const {
        return value;
    }
};

}  // namespace

Json Json::parse(const std::string& text) {
    try {
        return taken(Library::parse(
            text, [](int depth, Library::parse_event_t /*event*/,
                     const Library& /*value*/) { return depth < kDeepest; }));
    } catch (const Library::parse_error& error) {
        throw JsonError(error.what(), error.byte);
    } catch (const Library::exception& error) {
        throw JsonError(error.what());
    }
}

std::string Json::dump(int indent) const {
    return dumped(visit(Giver{}), indent);
}

}  // namespace lockstep
