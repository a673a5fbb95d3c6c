// Command pause is the process of a pod's sandbox: it holds the pod's namespaces open until it is told to go, and, where
// it is the first process of a shared PID namespace, takes in the exit of orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for pid, err := 1, error(nil); pid > 0 && err == nil; {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
