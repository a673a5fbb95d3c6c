package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// credentials of a client, in files that are read for each connection, so that renewed ones are used.
type credentials struct {
	directory  string // empty: connections are not encrypted
	serverName string
}

// forward listens on one loopback address per member, in the order of their names, and forwards each connection to the
// address that the member's file has at that time.
//
// Upstream's clients have fixed addresses and no TLS. Pods get other addresses, and may require certificates.
func forward(members string, own credentials) (endpoints []string, err error) {
	files, err := os.ReadDir(members)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, listener.Addr().String())
		go accept(listener, filepath.Join(members, file.Name()), own)
	}
	return endpoints, nil
}

func accept(listener net.Listener, address string, own credentials) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			member, err := own.dial(address)
			if err != nil {
				return // as a member that refuses connections
			}
			defer member.Close()
			go func() {
				defer client.Close()
				io.Copy(client, member)
			}()
			io.Copy(member, client)
		}()
	}
}

// dial connects to the address in a file.
func (own credentials) dial(file string) (net.Conn, error) {
	address, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	member := strings.TrimSpace(string(address))
	if own.directory == "" {
		return dialer.Dial("tcp", member)
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(own.directory, "tls.crt"), filepath.Join(own.directory, "tls.key"))
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(filepath.Join(own.directory, "ca.crt"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(bundle)
	return tls.DialWithDialer(dialer, "tcp", member, &tls.Config{
		RootCAs:      authorities,
		Certificates: []tls.Certificate{certificate},
		ServerName:   own.serverName,
		NextProtos:   []string{"h2"}, // gRPC
	})
}
