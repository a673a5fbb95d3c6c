// Command judge runs etcd's own robustness tests against a cluster that something else operates.
//
//	judge traffic --members DIR --report DIR [--kind etcd|kubernetes] [--large N] [--tls DIR --server-name NAME]
//	judge validate DIR…
//
// The clients, the model and the checks are those of etcd (go.etcd.io/etcd/tests/v3/robustness). Upstream starts the
// members itself and injects the faults. Here the caller does both, and decides how long the traffic lasts.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/traffic"
)

// limit of one run: upstream's collector of watch events waits without limit for a member that never returns.
const limit = 15 * time.Minute

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: judge traffic|validate"))
	}
	time.AfterFunc(limit, func() {
		fail(fmt.Errorf("not finished within %s, for example because a member did not return all events", limit))
	})
	switch command, arguments := os.Args[1], os.Args[2:]; command {
	case "traffic":
		fail(runTraffic(arguments))
	case "validate":
		encoder := json.NewEncoder(os.Stdout)
		for _, directory := range arguments {
			fail(encoder.Encode(judge(directory)))
		}
	default:
		fail(fmt.Errorf("unknown command %q", command))
	}
}

// runTraffic prints "started", and stops when standard input ends.
func runTraffic(arguments []string) error {
	flags := flag.NewFlagSet("traffic", flag.ExitOnError)
	members := flags.String("members", "", "directory with a file for each member; its content is the member's address, host:port")
	report := flags.String("report", "", "directory for the report; what it contains is deleted")
	kind := flags.String("kind", "etcd", "requests: etcd (put, delete, leases, transactions) or kubernetes (those of an API server)")
	large := flags.Int("large", 0, "number of values of 1 MiB that are written first, to one key")
	tls := flags.String("tls", "", "directory with ca.crt, tls.crt and tls.key; without it, connections are not encrypted")
	serverName := flags.String("server-name", "", "name in the certificates of the members")
	flags.DurationVar(&traffic.RequestTimeout, "request-timeout", time.Second, "time after which a client gives up a request")
	flags.Parse(arguments)

	endpoints, err := forward(*members, credentials{directory: *tls, serverName: *serverName})
	if err != nil {
		return err
	}
	return record(endpoints, *kind, *large, *report)
}

// fail ends the program if there is an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}
