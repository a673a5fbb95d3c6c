package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.etcd.io/raft/v3/raftpb"
)

const validateTimeout = 5 * time.Minute // upstream's

// verdict about one report. Each of the six results is Success, a failure with its message, or empty: not checked.
type verdict struct {
	Assumptions   string `json:"assumptions"`   // the database was empty, and no client had two requests at a time
	Logs          string `json:"logs"`          // the write-ahead logs have each entry, and agree on the committed ones
	Linearization string `json:"linearization"` // an order of all requests explains each response
	Watch         string `json:"watch"`         // watches returned each event once and in order
	Serializable  string `json:"serializable"`  // reads of former revisions returned what these had
	Hashes        string `json:"hashes"`        // all members have the same data

	Requests int `json:"requests"`
	Failed   int `json:"failed"` // requests without a successful response
	Events   int `json:"events"` // events that watches returned
}

// judge returns the verdict about a report with the write-ahead logs of the members in server-NAME/member/wal.
//
// It changes these logs: see readable.
func judge(directory string) (found verdict) {
	reports, err := report.LoadClientReports(directory)
	if err != nil {
		found.Assumptions = err.Error()
		return found
	}
	found.count(reports)
	found.Hashes = result(compareHashes(directory))
	persisted, err := persistedRequests(directory)
	found.Logs = result(err)
	if err != nil {
		persisted = nil
	}
	detail, err := report.LoadTrafficDetail(directory)
	if err != nil {
		found.Assumptions = err.Error()
		return found
	}
	config := validate.Config{ExpectRevisionUnique: detail.ExpectUniqueRevision}
	results := validate.ValidateAndReturnVisualize(zap.NewNop(), config, reports, persisted, validateTimeout)
	found.Assumptions = results.Assumptions.String()
	found.Linearization = results.Linearization.String()
	found.Watch = results.Watch.String()
	found.Serializable = results.Serializable.String()
	if results.Linearization.Status == validate.Failure {
		porcupine.VisualizePath(results.Linearization.Model, results.Linearization.Info, filepath.Join(directory, "history.html"))
	}
	return found
}

func (found *verdict) count(reports []report.ClientReport) {
	for _, each := range reports {
		found.Requests += len(each.KeyValue)
		found.Events += each.WatchEventCount()
		for _, operation := range each.KeyValue {
			if operation.Output.(model.MaybeEtcdResponse).Error != "" {
				found.Failed++
			}
		}
	}
}

// compareHashes returns an error unless all members had the same data at the same revision.
func compareHashes(directory string) error {
	content, err := os.ReadFile(filepath.Join(directory, hashesFile))
	if err != nil {
		return err
	}
	var hashes []hash
	if err := json.Unmarshal(content, &hashes); err != nil {
		return err
	}
	if len(hashes) == 0 {
		return errors.New("no hashes")
	}
	for _, each := range hashes {
		if each != hashes[0] {
			return fmt.Errorf("members have different data: %s", content)
		}
	}
	return nil
}

// persistedRequests returns the requests in the logs of all members.
func persistedRequests(directory string) (requests []model.EtcdRequest, err error) {
	defer func() {
		if unhandled := recover(); unhandled != nil { // upstream panics for a request that its model does not have
			err = fmt.Errorf("cannot judge: %v", unhandled)
		}
	}()
	members, err := filepath.Glob(filepath.Join(directory, "server-*"))
	if err != nil {
		return nil, err
	}
	for _, member := range members {
		if err := readable(member); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(member), err)
		}
	}
	return report.LoadClusterPersistedRequests(zap.NewNop(), directory)
}

// readable replaces the log of a member by one without the data that the model does not have.
func readable(member string) error {
	state, entries, err := report.ReadWAL(zap.NewNop(), member)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.GetType() == raftpb.EntryNormal && changesNothing(entry.GetData()) {
			entry.Data = nil
		}
	}
	directory := datadir.ToWALDir(member)
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	log, err := wal.Create(zap.NewNop(), directory, nil)
	if err != nil {
		return err
	}
	defer log.Close()
	return log.Save(state, entries)
}

// changesNothing returns whether the data of an entry is a query of the operator that etcd sends through the log, or a
// request of the API v2, with which etcd 3.5 describes its members.
func changesNothing(data []byte) bool {
	var request pb.InternalRaftRequest
	if err := proto.Unmarshal(data, &request); err != nil {
		return true // API v2: each record has a checksum, so it is not damaged
	}
	return request.AuthStatus != nil || request.Alarm != nil && request.Alarm.Action == pb.AlarmRequest_GET
}

func result(err error) string {
	if err != nil {
		return err.Error()
	}
	return string(validate.Success)
}
