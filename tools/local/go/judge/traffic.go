package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
)

const (
	dialTimeout  = 2 * time.Second
	retryPause   = 200 * time.Millisecond
	settleTime   = time.Second // upstream's pause before the last write
	lastKey      = "tombstone" // upstream's
	largeKey     = "large"
	largeSize    = 1 << 20 // bytes
	hashesFile   = "hashes.json"
	queryTimeout = 10 * time.Second
)

// hash of the data of one member.
type hash struct {
	Revision, CompactRevision int64
	Hash                      uint32
}

var kinds = map[string]traffic.Traffic{"etcd": traffic.EtcdPutDeleteLease, "kubernetes": traffic.Kubernetes}

// record runs traffic until standard input ends, and writes a report of all requests, responses and events.
//
// It is upstream's runScenario and SimulateTraffic, without the members and the faults. First it writes a number of
// large values, so that the members have something to defragment.
func record(endpoints []string, kind string, large int, directory string) error {
	requests, known := kinds[kind]
	if !known {
		return fmt.Errorf("unknown kind of traffic %q", kind)
	}
	ctx, log := context.Background(), zap.NewNop()
	ids, base := identity.NewIDProvider(), time.Now()
	clients, watchers := client.NewSet(ids, base), client.NewSet(ids, base)
	if err := traffic.CheckEmptyDatabaseAtStart(ctx, log, endpoints, clients); err != nil {
		return err
	}
	lastRevision := make(chan int64, 1)
	var collecting errgroup.Group
	collecting.Go(func() error {
		return client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: log, Endpoints: endpoints, MaxRevisionChan: lastRevision, ClientSet: watchers,
		})
	})
	if err := write(ctx, endpoints, clients, largeKey, large, strings.Repeat("x", largeSize)); err != nil {
		return err
	}
	if err := runUntilInputEnds(ctx, endpoints, requests, clients); err != nil {
		return err
	}
	time.Sleep(settleTime)
	if err := write(ctx, endpoints, clients, lastKey, 1, ""); err != nil { // the last write must be acknowledged
		return err
	}
	reports := clients.Reports()
	lastRevision <- report.OperationsMaxRevision(reports)
	if err := collecting.Wait(); err != nil {
		return err
	}
	detail := report.TrafficDetail{ExpectUniqueRevision: requests.ExpectUniqueRevision()}
	saved, err := report.NewTestReport(log, directory, nil, &detail)
	if err != nil {
		return err
	}
	saved.SetClientReports(slices.Concat(reports, watchers.Reports()))
	if err := saved.SaveEtcdData(); err != nil {
		return err
	}
	return saveHashes(ctx, endpoints, directory)
}

// runUntilInputEnds prints "started" after the first requests of all clients are on their way.
func runUntilInputEnds(ctx context.Context, endpoints []string, requests traffic.Traffic, clients *client.ClientSet) error {
	var running sync.WaitGroup
	profile := traffic.KeyValueMedium
	limiter := rate.NewLimiter(rate.Limit(profile.MaximalQPS), profile.BurstableQPS)
	keys, objects, finish := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage(), make(chan struct{})
	err := traffic.SimulateKeyValueTraffic(ctx, &running, &profile, endpoints, clients, requests, traffic.RunTrafficLoopParam{
		QPSLimiter:                         limiter,
		IDs:                                clients.IdentityProvider(),
		LeaseIDStorage:                     identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(profile.MaxNonUniqueRequestConcurrency),
		KeyStore:                           keys,
		Storage:                            objects,
		Finish:                             finish,
	})
	if err != nil {
		return err
	}
	err = traffic.SimulateWatchTraffic(ctx, &running, &traffic.WatchDefault, endpoints, clients, requests, traffic.RunWatchLoopParam{
		Config: traffic.WatchDefault, QPSLimiter: limiter, KeyStore: keys, Storage: objects, Finish: finish, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	// That of kind etcd panics if the first member is behind what it returned before, as one with a new volume is.
	err = traffic.SimulateCompactionTraffic(ctx, &running, &traffic.CompactionDefault, endpoints, clients, traffic.Kubernetes, traffic.RunCompactLoopParam{
		Period: traffic.CompactionDefault.Period, Finish: finish,
	})
	if err != nil {
		return err
	}
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin)
	close(finish)
	running.Wait()
	return err
}

// write writes a key until the given number of writes was acknowledged. Each value is another one.
func write(ctx context.Context, endpoints []string, clients *client.ClientSet, key string, times int, value string) error {
	writer, err := clients.NewClient(endpoints)
	if err != nil {
		return err
	}
	defer writer.Close()
	for attempt := 0; times > 0; attempt++ {
		limited, cancel := context.WithTimeout(ctx, queryTimeout)
		_, err := writer.Put(limited, key, fmt.Sprint(attempt, value))
		cancel()
		if err == nil {
			times--
			continue
		}
		time.Sleep(retryPause) // the program's own limit ends this
	}
	return nil
}

// saveHashes writes the hashes of all members; each member has the last revision, which its watch has returned.
func saveHashes(ctx context.Context, endpoints []string, directory string) error {
	cluster, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cluster.Close()
	hashes := []hash{}
	for _, endpoint := range endpoints {
		limited, cancel := context.WithTimeout(ctx, queryTimeout)
		found, err := cluster.HashKV(limited, endpoint, 0)
		cancel()
		if err != nil {
			return fmt.Errorf("hash of a member: %w", err)
		}
		hashes = append(hashes, hash{found.Header.Revision, found.CompactRevision, found.Hash})
	}
	content, err := json.Marshal(hashes)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, hashesFile), content, 0o644)
}
