"""The tests of Tyrum; support code lives in tests.support."""
