// Command images prints how container runtimes parse image references, as JSON: one array per line, with the text, and
// the name with the defaults of Docker Hub, the tag and the digest. If the text is refused, it is alone.
//
//	(cd tests/recorded/images && go run . > references.json)
//
// containerd, CRI-O and the kubelet parse with this package.
package main

import (
	_ "crypto/sha256" // a digest is refused if its algorithm is not in the program
	_ "crypto/sha512"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

var label = strings.Repeat("a", 60)
var host = label + "." + label + "." + label + ".example.com"

var registries = []string{
	"", "docker.io/", "index.docker.io/", "registry-1.docker.io/", "docker.IO/", "localhost/", "LOCALHOST/", "localhost:5000/",
	"host/", "host:5000/", "host:/", "host:port/", "Host/", "HOST:1/", "a.b/", "a.b:99999/", "A.b/", "1/", "1.2/", "127.0.0.1/",
	"127.0.0.1:5000/", "[::1]/", "[::1]:5000/", "[2001:DB8::1]/", "[::1%eth0]/", "[::g]/", "::1/", "-a.b/", "a-.b/", "a..b/",
	".a.b/", "a.b./", "a_b.c/", "a_b/", "a-b/", "xn--7o8h.com/", "käse.de/", "https://a.b/", "//", "a.b//", "a@b/", "host.:1/",
	"library/", "docker.io/library/", "docker.io/Library/", " a.b/", "a.b /", host + "/",
}

var repositories = []string{
	"redis", "team/redis", "a/b/c/d", "library/redis", "Redis", "team/Redis", "Team/redis", "a.b/redis", "re__dis", "re___dis",
	"re--dis", "re.dis", "re..dis", "re._dis", "_redis", "redis_", "redis-", "-redis", ".redis", "redis.", "redis/", "", "réd", "1",
}

var tags = []string{
	"", ":1", ":8.2.9", ":8.2.9-alpine", ":latest", ":LATEST", ":_", ":_a.b-c", ":.a", ":-a", ":", ":a:b", ":a/b", ":ä", ": a", ":a ",
	":" + strings.Repeat("a", 128), ":" + strings.Repeat("a", 129), ":a+b", ":5000", ":a\n",
}

var digests = []string{
	"", "@sha256:" + strings.Repeat("0a", 32), "@sha256:" + strings.Repeat("0A", 32), "@sha256:" + strings.Repeat("0a", 31),
	"@sha256:" + strings.Repeat("0a", 33), "@sha256:" + strings.Repeat("0g", 32), "@sha384:" + strings.Repeat("0a", 48),
	"@sha512:" + strings.Repeat("0a", 64), "@sha512:" + strings.Repeat("0a", 32), "@md5:" + strings.Repeat("0a", 16),
	"@sha1:" + strings.Repeat("0a", 20), "@SHA256:" + strings.Repeat("0a", 32), "@blake3:" + strings.Repeat("0a", 32),
	"@sha256+b64:" + strings.Repeat("0a", 32), "@", "@sha256", "@sha256:", "@latest",
	"@sha256:" + strings.Repeat("0a", 32) + "@sha256:" + strings.Repeat("0a", 32), "@sha256:" + strings.Repeat("0a", 32) + ":1",
}

func texts() (all []string) {
	for _, registry := range registries {
		for _, repository := range repositories {
			all = append(all, registry+repository)
		}
	}
	for _, name := range []string{"redis", "host:5000/team/redis"} {
		for _, tag := range tags {
			for _, digest := range digests {
				all = append(all, name+tag+digest)
			}
		}
	}
	for length := 200; length <= 260; length++ { // the name has at most 255 characters, with or without the defaults
		all = append(all, strings.Repeat("a", length), "a/"+strings.Repeat("a", length-2), host+"/"+strings.Repeat("a", length-len(host)-1))
	}
	for length := 62; length <= 66; length++ { // 64 hexadecimal digits are the identifier of a local image
		all = append(all, strings.Repeat("0", length), strings.Repeat("0", length)+":1", strings.Repeat("A", length))
	}
	for character := rune(0); character < 128; character++ {
		all = append(all, "re"+string(character)+"dis", string(character)+"redis", "redis"+string(character), "a"+string(character)+"b/redis")
	}
	return all
}

func main() {
	separator := "["
	known := map[string]bool{}
	for _, text := range texts() {
		if known[text] {
			continue
		}
		known[text] = true
		row := []string{text}
		if named, err := reference.ParseNormalizedNamed(text); err == nil {
			tag, digest := "", ""
			if tagged, is := named.(reference.Tagged); is {
				tag = tagged.Tag()
			}
			if digested, is := named.(reference.Digested); is {
				digest = digested.Digest().String()
			}
			row = append(row, named.Name(), tag, digest)
		}
		line, err := json.Marshal(row)
		if err != nil {
			panic(err)
		}
		fmt.Print(separator, "\n", string(line))
		separator = ","
	}
	fmt.Println("\n]")
}
