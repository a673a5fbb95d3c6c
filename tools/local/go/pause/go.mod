module example.com/platform/tools/local/go/pause

go 1.26.0
