// Empty: it is compiled so that tests/CMakeLists.txt can precompile the headers that tests share.
