PRAGMA application_id = -18953520;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL, at REAL NOT NULL, run_id TEXT NOT NULL, recipe TEXT NOT NULL,
    engine TEXT NOT NULL, scalars TEXT NOT NULL, updates TEXT NOT NULL,
    members TEXT NOT NULL, journal TEXT NOT NULL
);
INSERT INTO "checkpoint" VALUES(1,59,1.79480869587516832352e+09,'r-1','{"layout":"{\"dtype\":\"float32\",\"entries\":[[\"w\",[7],\"parameter\"],[\"running_mean\",[2],\"buffer\"]]}","algorithm":"fedecado","rules":{"mode":"stream","active":4,"min_clients":1,"min_updates":1,"target_updates":2,"deadline":9.0,"lease":null,"retry":5.0,"max_staleness":20,"max_rounds":null,"target":null,"rest_tolerance":null,"seed":0},"solver":null,"mu":null,"server_rate":null}','{"format":1,"round":12,"open":false,"late":false,"draws":1,"paused":true,"finished":null,"version":12,"next_number":32,"clients":[{"name":"client-0","samples":5,"connected":true,"task":null,"last_done":30,"asked":30,"resting":null},{"name":"client-1","samples":8,"connected":true,"task":null,"last_done":25,"asked":25,"resting":null},{"name":"client-2","samples":11,"connected":true,"task":null,"last_done":29,"asked":29,"resting":null},{"name":"client-4","samples":31,"connected":true,"task":31,"last_done":27,"asked":31,"resting":null},{"name":"client-5","samples":20,"connected":false,"task":null,"last_done":28,"asked":null,"resting":null}],"tasks":[{"number":30,"client":"client-0","version":11,"round":12,"weight":0.4098360655737705,"phase":"ready"},{"number":31,"client":"client-4","version":11,"round":12,"weight":1.3934426229508197,"phase":"running"}],"ready":[30],"closing":[]}','{"kind":"circuit","level":0,"version":12,"time":8.145245887093823}','{"30":{"time":0.4879848262291074,"curvature":0.0660221853025098,"steps":2,"loss_before":NaN,"loss_after":0.25}}','[]','null');
CREATE TABLE clients (client TEXT PRIMARY KEY, vector INTEGER NOT NULL);
INSERT INTO "clients" VALUES('client-0',39);
INSERT INTO "clients" VALUES('client-4',41);
INSERT INTO "clients" VALUES('client-5',42);
INSERT INTO "clients" VALUES('client-1',47);
INSERT INTO "clients" VALUES('client-2',48);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, vector INTEGER
);
INSERT INTO "events" VALUES(60,'UpdateArrived','{"client":"client-4","task":31,"result":{"time":0.6504444771687662,"curvature":1.1732262418287727,"steps":6,"loss_before":NaN,"loss_after":0.25}}',49);
INSERT INTO "events" VALUES(61,'LeaseExpired','{"task":14}',NULL);
INSERT INTO "events" VALUES(62,'Disconnected','{"client":"client-4"}',NULL);
INSERT INTO "events" VALUES(63,'Resumed','{}',NULL);
INSERT INTO "events" VALUES(64,'Aggregated','{"rate":0.14046834932380667}',NULL);
INSERT INTO "events" VALUES(65,'UpdateArrived','{"client":"client-2","task":33,"result":{"time":0.6403096575524605,"curvature":0.08687868152449285,"steps":7,"loss_before":NaN,"loss_after":NaN}}',50);
INSERT INTO "events" VALUES(66,'UpdateArrived','{"client":"client-1","task":32,"result":{"time":0.7058518539503151,"curvature":0.8410277955277119,"steps":7,"loss_before":NaN,"loss_after":0.25}}',51);
INSERT INTO "events" VALUES(67,'Aggregated','{"rate":0.08215131149514159}',NULL);
INSERT INTO "events" VALUES(68,'UpdateArrived','{"client":"client-1","task":35,"result":{"time":0.5940030234371512,"curvature":1.6062746856345018,"steps":4,"loss_before":NaN,"loss_after":0.25}}',52);
INSERT INTO "events" VALUES(69,'UpdateArrived','{"client":"client-0","task":34,"result":{"time":0.3323092597014705,"curvature":1.9376228585519522,"steps":9,"loss_before":NaN,"loss_after":0.25}}',53);
INSERT INTO "events" VALUES(70,'Aggregated','{"rate":0.0876161829412415}',NULL);
INSERT INTO "events" VALUES(71,'UpdateArrived','{"client":"client-2","task":36,"result":{"time":0.8512938541059946,"curvature":1.0603591470788327,"steps":7,"loss_before":NaN,"loss_after":NaN}}',54);
INSERT INTO "events" VALUES(72,'Paused','{}',NULL);
INSERT INTO "events" VALUES(73,'Measured','{"version":15,"metrics":{"loss":NaN,"accuracy":0.1}}',NULL);
INSERT INTO "events" VALUES(74,'UpdateArrived','{"client":"client-0","task":37,"result":{"time":0.1083065962986266,"curvature":1.760935833688985,"steps":3,"loss_before":NaN,"loss_after":NaN}}',55);
INSERT INTO "events" VALUES(75,'Aggregated','{"rate":0.007383061385310129}',NULL);
INSERT INTO "events" VALUES(76,'UpdateArrived','{"client":"client-0","task":16}',NULL);
INSERT INTO "events" VALUES(77,'UpdateArrived','{"client":"client-1","task":38,"result":{"time":0.996282936034682,"curvature":1.1272746847767492,"steps":9,"loss_before":NaN,"loss_after":NaN}}',56);
INSERT INTO "events" VALUES(78,'TaskFailed','{"client":"client-0","task":1}',NULL);
INSERT INTO "events" VALUES(79,'Paused','{}',NULL);
INSERT INTO "events" VALUES(80,'Measured','{"version":16,"metrics":{"loss":NaN,"accuracy":0.1}}',NULL);
CREATE TABLE models (version INTEGER PRIMARY KEY, at REAL NOT NULL, vector INTEGER NOT NULL);
INSERT INTO "models" VALUES(11,1.7948086958473036289e+09,37);
INSERT INTO "models" VALUES(12,1.79480869587516832352e+09,45);
CREATE TABLE state (
    role TEXT NOT NULL, name TEXT NOT NULL, vector INTEGER NOT NULL, PRIMARY KEY (role, name)
);
INSERT INTO "state" VALUES('version','11',37);
INSERT INTO "state" VALUES('version','12',45);
INSERT INTO "state" VALUES('algorithm','F',46);
INSERT INTO "state" VALUES('update','30',44);
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY,
    dtype TEXT NOT NULL, length INTEGER NOT NULL, crc INTEGER NOT NULL,
    file TEXT, start INTEGER NOT NULL, inline BLOB
);
INSERT INTO "vectors" VALUES(37,'<f4',36,2453582611,NULL,0,X'FBE883BF968646BF87AFD1BEE848A9BE60A171BCAED7983ECFFEF83EFE00673F5A6C873F');
INSERT INTO "vectors" VALUES(39,'<f4',28,589457351,NULL,0,X'77DF57BF71A209BF4869A1BEF540BC3DFD4D67BFF85863BE1D8041BE');
INSERT INTO "vectors" VALUES(41,'<f4',28,2434190765,NULL,0,X'31C0BA3F062BB5BF00F17A390EB66D3F00FAC839B76C7A3F6C7FC0BE');
INSERT INTO "vectors" VALUES(42,'<f4',28,2367861995,NULL,0,X'4E6D87BECC96063F133D263F08935CBF7C44333FCE2616BFE8DE58BD');
INSERT INTO "vectors" VALUES(44,'<f4',36,3740009974,NULL,0,X'967E84BF9D8261BFA06E05BF1D3BBEBEA26CDC3D4B7A8D3E93BCE43ED8E15C3FE2E9853F');
INSERT INTO "vectors" VALUES(45,'<f4',36,3789579839,NULL,0,X'F5D786BF52BC58BF849AB7BEB3E08EBE04E2C5BD14B4913E6420B13E0E596B3FC8EF8C3F');
INSERT INTO "vectors" VALUES(46,'<f8',56,867613025,NULL,0,X'00000000431FAF3F00000080F4EBBB3F000000701B39BBBF00000060E2D1B7BF0000005025F4CA3F000000002F41B33F00000090C2EAD53F');
INSERT INTO "vectors" VALUES(47,'<f4',28,2558797057,NULL,0,X'1066A63CB153EABE70FB13BEA79B243FB86EDE3EF2AD093F04FAAB3E');
INSERT INTO "vectors" VALUES(48,'<f4',28,3881006722,NULL,0,X'A61B9FBEBF3BFF3FBBA497BEAE1865BFF4D5ABBC6EDC21BFB4DB1F3F');
INSERT INTO "vectors" VALUES(49,'<f4',36,350284383,NULL,0,X'9B4656BFFF4384BFB59CE2BE166FC8BE8C6B6ABD4B87FC3DC7A5FF3E70976F3F8BDD3B3F');
INSERT INTO "vectors" VALUES(50,'<f4',36,3062822158,NULL,0,X'142E6CBF7F6F4DBFC6B102BF050DCABE38B252BEBC70D53E4A354E3EB06E363F6D26903F');
INSERT INTO "vectors" VALUES(51,'<f4',36,674447062,NULL,0,X'76F576BFD99C5ABFD19F69BEBAB58CBE56B023BEC296B13EB44FC73E7F7C633F3AD27C3F');
INSERT INTO "vectors" VALUES(52,'<f4',36,391397251,NULL,0,X'36FF50BF6D0251BFA12AA6BE4FFDA3BE6B405EBE8CF5B33D3BF1A03E78D23A3F35B4833F');
INSERT INTO "vectors" VALUES(53,'<f4',36,717313044,NULL,0,X'8A1A59BFDB4592BF3CA9DDBE0FE6F9BE3CCF5D3D348B8F3E01C3F73E1D56803FAC031B3F');
INSERT INTO "vectors" VALUES(54,'<f4',36,819849223,NULL,0,X'718B6CBF7B8768BFF2C9FFBE2D58B0BEA9F433BED9245E3EAA827D3E47BB5D3F2D1E7E3F');
INSERT INTO "vectors" VALUES(55,'<f4',36,198125817,NULL,0,X'0C7252BFEBDC87BF4CF542BE0B1BD3BEC1D90A3E4A119B3E13C2FC3EC975533FEA50673F');
INSERT INTO "vectors" VALUES(56,'<f4',36,895788801,NULL,0,X'A63D57BF654384BF611F0ABFA410D3BE01E84D3DC7001F3E17DFD53E0B31343F63F6413F');
CREATE INDEX vectors_by_file ON vectors (file);
COMMIT;
