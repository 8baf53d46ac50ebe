// Does nothing: tests/CMakeLists.txt builds it to precompile the headers that tests share.
int main() { return 0; }
