#include "src/run/naming_rank.hpp"

#include <stdexcept>
#include <string>
#include <typeinfo>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// If the error's type is exactly one of these types, throws that type with the sentence.
template <typename... Types>
void throw_as(const std::exception& error, const std::string& sentence) {
    const auto throw_one = [&]<typename Type>(const Type*) {
        if (typeid(error) == typeid(Type)) throw Type(sentence);
    };
    (throw_one(static_cast<const Types*>(nullptr)), ...);
}

}  // namespace

void rethrow_naming_rank(int rank, const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        const std::string sentence = error.what();
        if (!sentence.starts_with("rank "))
            throw_as<UsageError, MissingError, std::runtime_error, std::logic_error,
                     std::invalid_argument, std::domain_error, std::length_error,
                     std::out_of_range, std::range_error, std::overflow_error,
                     std::underflow_error>(error,
                                           fmt::format("rank {}: {}", rank, sentence));
        throw;
    }
}

}  // namespace lockstep
