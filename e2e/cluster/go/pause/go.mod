module example.com/platform/e2e/cluster/go/pause

go 1.26.0
