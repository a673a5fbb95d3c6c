"""The EtcdCluster and EtcdBackup resources: specs, rules, warnings and versions."""
